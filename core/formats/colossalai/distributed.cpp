#include "formats/colossalai/distributed.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/rule.h"
#include "base/text.h"
#include "formats/colossalai/layouts.h"
#include "formats/colossalai/names.h"
#include "formats/open_files.h"

namespace shardscope::colossalai {

namespace {

constexpr size_t kListed = 40;  // names in one message

}  // namespace

Result<std::unique_ptr<Reader>> DistributedOpener::open() {
    SHARDSCOPE_ASSIGN(fused_, FusedChoice::parse(options_.variant, "q, k and v"));
    SHARDSCOPE_TRY(readMetadata());
    check_ = checkSave(ranks_);
    addMetadataFiles();
    noteForeign();
    SHARDSCOPE_TRY(openWeights());
    noteMissingRanks();
    addTensors();
    addUnlisted();
    addObjects();
    addOtherFiles();
    ranks_.clear();  // what they say is in the assembly now
    return assembly_.finish(world_, mesh());
}

Status DistributedOpener::readMetadata() {
    for (const DirectoryEntry& entry : source_.entries) {
        if (entry.kind != DirectoryEntry::Kind::file) continue;
        const auto id = metaFileId(entry.name);
        if (!id) continue;
        SHARDSCOPE_TRY(options_.stop.poll());
        SHARDSCOPE_ASSIGN(const auto file, source_.directory->openFile(entry.name));
        SHARDSCOPE_ASSIGN(const std::string json, wholeText(*file, options_.limits.indexJson));
        auto parsed = parseRankMetadata(json);
        if (!parsed.ok()) return std::move(parsed).error().inFile(file->path());
        ranks_.push_back({*id, entry.name, file->size(), std::move(parsed).value()});
    }
    if (ranks_.empty())
        return unsupported(fmt::format("holds no {}*.json", kMetaPrefix)).inFile(source_.display);
    std::ranges::stable_sort(ranks_, {}, &RankFile::id);
    for (size_t r = 1; r < ranks_.size(); ++r) {
        if (ranks_[r].id == ranks_[r - 1].id) {
            assembly_.note(
                rule::metaDuplicate, Severity::warning,
                fmt::format("rank {} is described twice, here and in '{}'", ranks_[r].id, ranks_[r - 1].name),
                ranks_[r].name);
        }
    }
    return {};
}

void DistributedOpener::addMetadataFiles() {
    for (const RankFile& rank : ranks_)
        assembly_.addOther({.path = rank.name, .size = rank.size, .metadata = true, .rank = rank.id});
    std::map<uint64_t, size_t> writers;  // the identity that the loader matches by
    for (size_t r = 0; r < ranks_.size(); ++r) {
        if (aside(r)) continue;
        std::set<uint64_t> here;
        for (const PieceEntry& entry : ranks_[r].metadata.entries) {
            if (entry.hasRank) here.insert(entry.rank);
        }
        for (uint64_t rank : here) {
            const auto [it, fresh] = writers.try_emplace(rank, r);
            if (fresh || ranks_[it->second].id == ranks_[r].id) continue;
            assembly_.note(
                rule::metaInconsistent, Severity::warning,
                fmt::format(
                    "gives its writer as rank {}, as '{}' does; ColossalAI's loader keeps one of them", rank,
                    ranks_[it->second].name),
                ranks_[r].name);
        }
    }
}

void DistributedOpener::noteForeign() {
    std::vector<std::string> files;
    std::set<std::string_view> tensors, shared;
    std::set<std::string> weights;
    for (size_t r = 0; r < ranks_.size(); ++r) {
        const RankMetadata& metadata = ranks_[r].metadata;
        for (size_t e = 0; e < metadata.entries.size(); ++e) {
            if (!check_.foreign[r]) {
                tensors.insert(metadata.names[e]);
            } else if (tensors.contains(metadata.names[e])) {
                shared.insert(metadata.names[e]);
            }
        }
        if (!check_.foreign[r]) continue;
        files.push_back(ranks_[r].name);
        for (const std::string& file : metadata.files) {
            const std::string last = lastPart(file);
            if (weights.insert(last).second && source_.hasFile(last)) files.push_back(last);
        }
    }
    if (files.empty()) return;
    assembly_.note(
        rule::fileStale, Severity::error,
        fmt::format("files of another save are here: {}; {}{}", listed(files, kListed), check_.why,
                    check_.setAside ? ". They are left aside; the others are whole without them" : ""));
    if (!check_.setAside) return;
    for (const std::string& file : files)
        asideFiles_.insert(file);
    assembly_.note(
        rule::coverageOverlap, Severity::error,
        fmt::format("ColossalAI's loader reads the files of both saves and lays their pieces over each "
                    "other in {} "
                    "tensors; remove those of the other save",
                    shared.size()));
}

std::string DistributedOpener::lastPart(std::string_view path) {
    const size_t slash = path.find_last_of("/\\");
    return std::string(slash == path.npos ? path : path.substr(slash + 1));
}

Status DistributedOpener::openWeights() {
    refs_.resize(ranks_.size());
    std::vector<std::pair<std::string, uint32_t>> names;
    for (size_t r = 0; r < ranks_.size(); ++r) {
        if (aside(r)) continue;
        for (const std::string& written : ranks_[r].metadata.files) {
            names.emplace_back(placeOf(written, ranks_[r]), ranks_[r].id);
        }
    }
    SHARDSCOPE_ASSIGN(const std::vector<uint32_t> indices, assembly_.addFiles(names));
    auto name = names.begin();
    for (size_t r = 0; r < ranks_.size(); ++r) {
        for (size_t f = 0; f < (aside(r) ? 0 : ranks_[r].metadata.files.size()); ++f)
            refs_[r].push_back(assembly_.known((name++)->first));
    }
    const auto holds = [&](TensorFile::Kind kind) {
        return std::ranges::any_of(indices,
                                   [&](uint32_t f) { return f != kNone && contents(f).kind == kind; });
    };
    const bool torch = holds(TensorFile::Kind::torch) && !holds(TensorFile::Kind::safetensors);
    assembly_.builder().setVariant(torch ? "distributed-bin" : "distributed");
    return {};
}

std::string DistributedOpener::placeOf(const std::string& written, const RankFile& rank) {
    const std::string name = lastPart(written);
    const bool path = name != written, climbs = written.find("..") != std::string::npos;
    if (!checkRelativeName(name).ok()) return refuse(written, rank);
    const auto entry = source_.directory->stat(name);
    // A file of this layout that is not here is missing; anything else is not a file of a checkpoint.
    const bool missing =
        !climbs && (!path || weightFileId(name)) && !entry.ok() && entry.error().code == ErrorCode::notFound;
    if (missing) return name;
    if (!entry.ok() || entry->kind != DirectoryEntry::Kind::file) return refuse(written, rank);
    if (!placed_.insert(name).second) return name;
    if (climbs) {
        assembly_.note(rule::securityPath, Severity::warning,
                       fmt::format("'{}' names '{}'; the file '{}' beside it was taken", rank.name,
                                   printable(written, kNameInMessage), name),
                       name);
    } else if (path && !std::exchange(notedPaths_, true)) {
        assembly_.note(
            rule::metaInconsistent, Severity::info,
            fmt::format("the metadata names its files by the path that they were saved to, such as '{}'; the "
                        "files here were taken. ColossalAI's own loader does not find them",
                        printable(written, kNameInMessage)),
            rank.name);
    }
    return name;
}

std::string DistributedOpener::refuse(const std::string& written, const RankFile& rank) {
    if (assembly_.known(written).id != kNone) return written;
    assembly_.note(rule::securityPath, Severity::error,
                   fmt::format("'{}' names '{}', which is not a file of this checkpoint; it is not opened",
                               rank.name, printable(written, kNameInMessage)),
                   written);
    assembly_.addOther({.path = written, .state = FileInfo::State::wrongKind, .rank = rank.id});
    return written;
}

void DistributedOpener::noteMissingRanks() {
    std::set<uint32_t> present;
    for (size_t r = 0; r < ranks_.size(); ++r) {
        if (!aside(r)) present.insert(ranks_[r].id);
    }
    const uint32_t last = *present.rbegin();
    const uint64_t stages = uint64_t{last} / check_.tp + 1;
    world_ = static_cast<uint32_t>(std::min<uint64_t>(stages * check_.tp, 1'000'000));
    // Nothing is missing behind the last one where all tensors are whole.
    if (check_.whole) world_ = last + 1;
    if (world_ - present.size() > 100'000) {
        assembly_.note(
            rule::rankMissing, Severity::error,
            fmt::format("the highest rank is {}, but only {} ranks are here", last, present.size()));
        world_ = last + 1;
        return;
    }
    const RankFile& like = *std::find_if(ranks_.begin(), ranks_.end(),
                                         [&](const RankFile& r) { return r.id == *present.begin(); });
    for (uint32_t id = 0; id < world_; ++id) {
        if (present.contains(id)) continue;
        const std::string meta = withId(like.name, like.id, id);
        std::string weights;
        for (const std::string& file : like.metadata.files) {
            const std::string name = withId(lastPart(file), like.id, id);
            if (!source_.hasFile(name))
                weights += fmt::format("{}'{}'", weights.empty() ? " and its weights, such as " : ", ", name);
            if (!weights.empty()) break;
        }
        assembly_.note(
            rule::fileMissing, Severity::error,
            fmt::format("rank {} of {} (tp={}) is missing: '{}'{}", id, world_, check_.tp, meta, weights),
            meta);
        assembly_.addOther({.path = meta, .state = FileInfo::State::missing, .metadata = true});
    }
}

void DistributedOpener::addOtherFiles() {
    for (const DirectoryEntry& entry : source_.entries) {
        if (entry.kind != DirectoryEntry::Kind::file || assembly_.known(entry.name).id != kNone) continue;
        // What was set aside is noted already.
        assembly_.addOther({.path = entry.name,
                            .size = entry.size,
                            .rank = weightFileId(entry.name).value_or(kNone),
                            .referenced = asideFiles_.contains(entry.name)});
    }
}

Mesh DistributedOpener::mesh() const {
    if (world_ % check_.tp != 0) return {};
    Mesh mesh;
    mesh.axes = {{"pp", world_ / check_.tp}, {"tp", check_.tp}};
    mesh.evidence = {
        fmt::format("tp={}: the chunks of sharded tensors are 1/{} of them", check_.tp, check_.tp),
        fmt::format("pp={}: {} ranks in all, numbered tp * stage + tp rank", world_ / check_.tp, world_)};
    return mesh;
}

Result<std::unique_ptr<Reader>> openDistributed(const Source& source, const OpenOptions& options) {
    return DistributedOpener(source, options).open();
}

}  // namespace shardscope::colossalai
