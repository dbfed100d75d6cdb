#include "formats/torch_save/reader.h"

#include <algorithm>

#include "formats/roles.h"
#include "formats/step_part.h"
#include "formats/tensor_files.h"

namespace shardscope::torch_save {

namespace {

// Whether a part of a distributed tensor is all of it: on a mesh of one device, or replicated.
bool isWhole(const TensorFile& saved, const StoredTensor& part) {
    const SpecialTensor& whole = saved.specials[part.special];
    if (part.shape != whole.shape) return false;
    if (whole.kind == "sharded_tensor")
        return std::ranges::all_of(part.shardOffsets, [](int64_t offset) { return offset == 0; });
    const auto& spec = saved.placements[part.special].dtensor;
    if (whole.kind != "dtensor" || !spec) return false;
    const auto parts = localParts(*spec, whole.shape);
    return parts.ok() && parts->boxes.size() == 1 && parts->boxes[0].lengths == whole.shape;
}

// The specials that are whole in the file, which are plain tensors under their own names.
std::vector<bool> wholeSpecials(const TensorFile& saved) {
    std::vector<bool> whole(saved.specials.size(), false);
    for (const StoredTensor& t : saved.tensors)
        if (t.special != kNone) whole[t.special] = isWhole(saved, t);
    return whole;
}

}  // namespace

Result<std::unique_ptr<Reader>> openCheckpoint(const Source& source, const std::string& entry,
                                               const OpenOptions& options) {
    auto files = std::make_unique<TensorFiles>(source, options);
    SHARDSCOPE_ASSIGN(const uint32_t index, files->add(entry, 0));
    const TensorFile& saved = (*files)[index];
    SHARDSCOPE_TRY(options.stop.poll());

    CatalogBuilder builder("torch", saved.variant, saved.writer);
    const FileId file = builder.addFile({.path = entry, .size = saved.size, .rank = 0});
    for (const auto* notes : {&saved.notes, &saved.recordNotes}) {
        for (const Note& note : *notes)
            builder.addNote(note);
    }
    const std::vector<bool> whole = wholeSpecials(saved);
    std::vector<uint32_t> specialOf(whole.size(), kNone);
    for (size_t s = 0; s < whole.size(); ++s)
        if (!whole[s]) specialOf[s] = builder.addSpecial(saved.specials[s]);
    const auto wholeOf = [&](const StoredTensor& t) {
        return t.special != kNone && whole[t.special] ? &saved.specials[t.special] : nullptr;
    };

    const bool beside = isBesideModel(stepPartOf(splitPath(entry).second));
    RoleFinder roles;
    for (const StoredTensor& t : saved.tensors)
        roles.add(wholeOf(t) ? wholeOf(t)->name : t.name);
    for (const StoredObject& o : saved.objects)
        roles.add(o.name);
    builder.reserve(saved.tensors.size(), saved.tensors.size(), saved.tensors.size() * 4);
    StoredParts parts;
    for (const StoredTensor& t : saved.tensors) {
        TensorInfo tensor;
        tensor.name = wholeOf(t) ? wholeOf(t)->name : t.name;
        tensor.path = wholeOf(t) ? wholeOf(t)->path : t.path;
        tensor.dtype = t.dtype;
        tensor.shape = t.shape;
        tensor.role = beside ? Role::other : t.buffer ? Role::buffer : roles.role(tensor.name);
        tensor.special = t.special == kNone ? kNone : specialOf[t.special];
        tensor.aliasOf = t.sameAs;
        Status added = builder.addTensor(tensor);
        if (added.ok()) added = builder.addWhole(0, file, t.offset, t.bytes);
        if (!added.ok())
            return std::move(added).error().ofTensor(t.name).inFile(source.directory->path() + "/" + entry);
        parts.add(StoredPart::whole(index, static_cast<uint32_t>(parts.size())));
    }
    addObjects(builder, saved, file);
    return makePartReader(source, std::move(builder).finish(), std::move(files), std::move(parts));
}

}  // namespace shardscope::torch_save
