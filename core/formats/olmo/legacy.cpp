// torch_legacy: rank{r}.pt with everything of a rank; tensors are pickled ShardedTensors.
#include <algorithm>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/units.h"
#include "formats/olmo/layouts.h"
#include "formats/rank_parts.h"
#include "formats/tensor_assembly.h"
#include "model/value_view.h"

namespace shardscope::olmo {

namespace {

// The name as OLMo's other layouts have it: weights bare, optimizer under "optim", what the trainer keeps
// under "train".
Path renamed(const Path& path, Role& role) {
    Path out(path.begin(), path.end());
    const std::string first = path.empty() ? std::string() : path[0].toString();
    if (first == "model" && path.size() > 1) {
        out.erase(out.begin());
        role = Role::parameter;
    } else if (first == "optim") {
        role = path.size() > 1 && path[1].toString() == "state" ? Role::optimizer : Role::other;
    } else {
        out.insert(out.begin(), keyPart("train"));
        role = Role::other;
    }
    for (PathPart& part : out) {
        if (part.kind == PathPart::Kind::key) part.text = withoutWrapper(part.text);
    }
    return out;
}

}  // namespace

Result<std::unique_ptr<Reader>> openLegacy(const Source& source, const OpenOptions& options) {
    TensorAssembly assembly(source, options, "olmo", "torch_legacy", "OLMo");
    std::vector<uint32_t> ranks;
    for (const DirectoryEntry& entry : source.entries) {
        if (const auto rank = rankOf(entry.name); rank && entry.kind == DirectoryEntry::Kind::file)
            ranks.push_back(*rank);
    }
    std::sort(ranks.begin(), ranks.end());
    if (ranks.empty()) return unsupported("holds no rank*.pt").inFile(source.display);
    int64_t world = int64_t{ranks.back()} + 1;
    if (world - static_cast<int64_t>(ranks.size()) > 100'000)
        return damaged(fmt::format("the highest rank is {}, but only {} are here", ranks.back(),
                                   counted(ranks.size(), "rank")))
            .inFile(source.display)
            .byRule(rule::rankMissing);
    (void)assembly.addText("config.yaml");
    bool first = true;
    std::vector<uint32_t> read;
    RankParts parts(assembly);
    for (uint32_t rank = 0; rank < world && rank <= 1'000'000; ++rank) {
        SHARDSCOPE_ASSIGN(const uint32_t file, assembly.addFile(fmt::format("rank{}.pt", rank), rank));
        if (file == kNone) continue;
        read.push_back(file);
        const TensorFile& contents = assembly.files()[file];
        for (uint32_t t = 0; t < contents.tensors.size(); ++t) {
            const StoredTensor& stored = contents.tensors[t];
            Role role = Role::other;
            if (stored.special == kNone) {
                const Path path = renamed(stored.path, role);
                // The trainer's tensors are the generators of one rank.
                if (role == Role::other && !first) continue;
                assembly.addWhole(file, t, path, role, rank);
                continue;
            }
            const SpecialTensor& whole = contents.specials[stored.special];
            const Path path = renamed(whole.path, role);
            if (whole.kind != "sharded_tensor" || stored.shardOffsets.size() != stored.shape.size() ||
                whole.shape.size() != stored.shape.size()) {
                assembly.wrong("the place of its shard cannot be read from the file", contents.name,
                               pathName(path));
                continue;
            }
            assembly.addPiece(path, stored.dtype, whole.shape, role,
                              {parts.rankOf(file, rank, contents.placements[stored.special].rank),
                               StoredPart::whole(file, t), stored.shardOffsets, stored.shape});
        }
        if (first) {
            for (const StoredObject& object : contents.objects) {
                Role role = Role::other;
                assembly.addObject(file, renamed(object.path, role), object.value, rank);
                // As the trainer states it: ranks may be missing at the end.
                if (object.name == "world_size")
                    world = std::clamp<int64_t>(ValueView(object.value).integer().value_or(0), world,
                                                world + 100'000);
            }
        }
        first = false;
    }
    TrainerCounters counters(assembly, world);
    for (const uint32_t file : read)
        (void)counters.add(file);
    assembly.addObject(kNone, {keyPart("metadata"), keyPart("world_size")}, makeIntegerValue(world), 0);
    assembly.noteDifferentCopies(Note::Lacks::anything, TensorAssembly::Vectors::mustAgree);
    return assembly.finish(static_cast<uint32_t>(world));
}

}  // namespace shardscope::olmo
