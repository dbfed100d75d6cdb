#include "formats/torch_save/reader.h"

#include "formats/roles.h"
#include "formats/tensor_files.h"

namespace shardscope::torch_save {

Result<std::unique_ptr<Reader>> openCheckpoint(const Source& source, const std::string& entry,
                                               const OpenOptions& options) {
    auto files = std::make_unique<TensorFiles>(source, options);
    SHARDSCOPE_ASSIGN(const uint32_t index, files->add(entry, 0));
    const TensorFile& saved = (*files)[index];
    SHARDSCOPE_TRY(options.stop.poll());

    CatalogBuilder builder("torch", saved.variant, saved.writer);
    FileInfo info;
    info.path = entry;
    info.size = saved.size;
    info.rank = 0;
    const FileId file = builder.addFile(std::move(info));
    for (const auto* notes : {&saved.notes, &saved.recordNotes}) {
        for (const Note& note : *notes)
            builder.addNote(note);
    }
    for (const SpecialTensor& special : saved.specials)
        builder.addSpecial(special);

    RoleFinder roles;
    for (const StoredTensor& t : saved.tensors)
        roles.add(t.name);
    for (const StoredObject& o : saved.objects)
        roles.add(o.name);
    builder.reserve(saved.tensors.size(), saved.tensors.size(), saved.tensors.size() * 4);
    StoredParts parts;
    for (const StoredTensor& t : saved.tensors) {
        TensorInfo tensor;
        tensor.name = t.name;
        tensor.path = t.path;
        tensor.dtype = t.dtype;
        tensor.shape = t.shape;
        tensor.role = t.buffer ? Role::buffer : roles.role(t.name);
        tensor.special = t.special;
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
