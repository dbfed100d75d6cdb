// The distributed layout: each rank stores its shards in its own files, with its own JSON metadata.
#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "formats/colossalai/layouts.h"
#include "formats/colossalai/names.h"
#include "formats/colossalai/rank_metadata.h"
#include "formats/tensor_assembly.h"
#include "formats/tp_rule.h"
#include "storage/open_files.h"

namespace shardscope::colossalai {

namespace {

// ------------------------------------------------------------------ are the files of one save?

// Saving over a checkpoint of more ranks leaves stale files of the higher ranks, which ColossalAI's loader
// would load, too.

struct RankFile {
    uint32_t id = 0;   // dist_id: pipeline stage * tp + tp rank
    std::string name;  // of the metadata file
    uint64_t size = 0;
    RankMetadata metadata;
};

struct SaveCheck {
    uint32_t tp = 1;            // tensor-parallel degree of rank 0's save
    std::vector<bool> foreign;  // by rank file: it is from another save
    bool whole = false;         // the other ranks hold every element of the tensors that they name
    bool setAside = false;      // ignore the foreign files: the others are whole without them
    std::string why;            // why files are foreign
};

constexpr size_t kCompared = 100'000;  // pieces of one tensor with a piece of another rank

// Whether two pieces share elements without being the same piece.
bool cross(const PieceEntry& a, const PieceEntry& b) {
    if (a.offsets.size() != b.offsets.size() || (a.offsets == b.offsets && a.lengths == b.lengths))
        return false;
    for (size_t d = 0; d < a.offsets.size(); ++d) {
        if (a.offsets[d] >= b.offsets[d] + b.lengths[d] || b.offsets[d] >= a.offsets[d] + a.lengths[d])
            return false;
    }
    return true;
}

// In how many parts a piece's tensor is cut; 1 = not at all. The save asserts that all parts are equal.
int64_t partsOf(const PieceEntry& entry) {
    for (size_t d = 0; d < entry.lengths.size(); ++d) {
        if (entry.lengths[d] > 0 && entry.globalShape[d] > entry.lengths[d])
            return (entry.globalShape[d] + entry.lengths[d] - 1) / entry.lengths[d];
    }
    return 1;
}

// The parts in which most of a rank's tensors are cut, 1 when none is.
int64_t tpOf(const RankMetadata& metadata) {
    std::unordered_map<int64_t, size_t> votes;
    int64_t best = 1;
    for (const PieceEntry& entry : metadata.entries) {
        const int64_t parts = partsOf(entry);
        if (parts > 1 && ++votes[parts] > (best > 1 ? votes[best] : 0)) best = parts;
    }
    return best;
}

// Whether the ranks that are not foreign hold every element of every tensor that they name.
bool whole(const std::vector<RankFile>& ranks, const std::vector<bool>& foreign) {
    struct Sum {
        std::set<Dims> seen;
        int64_t elements = 0, wanted = 0;
    };
    std::unordered_map<std::string_view, Sum> sums;
    for (size_t r = 0; r < ranks.size(); ++r) {
        if (foreign[r]) continue;
        const RankMetadata& metadata = ranks[r].metadata;
        for (size_t e = 0; e < metadata.entries.size(); ++e) {
            const PieceEntry& entry = metadata.entries[e];
            Sum& sum = sums[metadata.names[e]];
            int64_t elements = 0;
            if (!checkedProduct(entry.lengths, elements) || !checkedProduct(entry.globalShape, sum.wanted))
                return false;
            if (sum.seen.insert(entry.offsets).second && !checkedAdd(sum.elements, elements, sum.elements))
                return false;
        }
    }
    return std::all_of(sums.begin(), sums.end(),
                       [](const auto& s) { return s.second.elements >= s.second.wanted; });
}

// Whether the ids of the ranks that stay are 0 to n - 1, n a whole number of stages, below all foreign ones.
bool contiguous(const std::vector<RankFile>& ranks, const std::vector<bool>& foreign, uint32_t tp) {
    uint32_t next = 0;
    bool behind = false;
    for (size_t r = 0; r < ranks.size(); ++r) {
        if (foreign[r]) {
            behind = true;
            continue;
        }
        if (behind || ranks[r].id != next) return false;
        ++next;
    }
    return next > 0 && next % tp == 0;
}

// `ranks` must be sorted by id.
SaveCheck checkSave(const std::vector<RankFile>& ranks) {
    SaveCheck check;
    check.foreign.assign(ranks.size(), false);
    if (ranks.empty()) return check;
    const int64_t tp = tpOf(ranks[0].metadata);
    check.tp = static_cast<uint32_t>(std::min<int64_t>(tp, 1'000'000));

    // Ranks whose tensors are cut in another number of parts, so that their pieces cross those of the others.
    // (The number alone says little: the last piece of an uneven cut is smaller.)
    std::unordered_map<std::string_view, std::vector<const PieceEntry*>> pieces;
    std::vector<uint32_t> others;
    std::set<int64_t> otherCuts;
    for (size_t r = 0; r < ranks.size(); ++r) {
        const RankMetadata& metadata = ranks[r].metadata;
        const int64_t here = tpOf(metadata);
        bool crosses = false;
        for (size_t e = 0; here != tp && !crosses && e < metadata.entries.size(); ++e) {
            const auto it = pieces.find(metadata.names[e]);
            if (it == pieces.end()) continue;
            for (size_t k = 0; k < std::min<size_t>(it->second.size(), kCompared) && !crosses; ++k)
                crosses = cross(*it->second[k], metadata.entries[e]);
        }
        if (crosses) {
            check.foreign[r] = true;
            others.push_back(ranks[r].id);
            otherCuts.insert(here);
            continue;
        }
        for (size_t e = 0; e < metadata.entries.size(); ++e)
            pieces[metadata.names[e]].push_back(&metadata.entries[e]);
    }
    check.whole = whole(ranks, check.foreign);
    if (!others.empty()) {
        check.why = fmt::format("rank 0 was saved with tp={}, {} with tp={}", tp,
                                others.size() == 1
                                    ? fmt::format("rank {}", others[0])
                                    : fmt::format("{} from {} on", counted(others.size(), "rank"), others[0]),
                                *otherCuts.begin());
        check.setAside = contiguous(ranks, check.foreign, check.tp) && check.whole;
        return check;
    }

    // Stages that bring nothing: a save with fewer stages holds all their tensors.
    std::set<std::string_view> known;
    size_t from = ranks.size();
    for (size_t r = 0; r < ranks.size();) {
        const uint32_t stage = ranks[r].id / check.tp;
        size_t end = r;
        bool news = false;
        for (; end < ranks.size() && ranks[end].id / check.tp == stage; ++end) {
            const RankMetadata& metadata = ranks[end].metadata;
            for (size_t e = 0; e < metadata.entries.size(); ++e)
                news = news || !known.contains(metadata.names[e]);
        }
        if (news || stage == 0) from = ranks.size();
        if (!news && stage > 0 && from == ranks.size()) from = r;
        for (; r < end; ++r) {
            for (size_t e = 0; e < ranks[r].metadata.entries.size(); ++e)
                known.insert(ranks[r].metadata.names[e]);
        }
    }
    if (from == ranks.size() || ranks[from].metadata.entries.empty()) return check;
    for (size_t r = from; r < ranks.size(); ++r)
        check.foreign[r] = true;
    check.why = fmt::format("the ranks before {} hold all tensors already", ranks[from].id);
    check.setAside = contiguous(ranks, check.foreign, check.tp) && whole(ranks, check.foreign);
    if (!check.setAside) check.foreign.assign(ranks.size(), false);
    return check;
}

// ------------------------------------------------------------------ the checkpoint

constexpr size_t kListed = 40;  // names in one message

bool mayBeFused(std::string_view name) {
    const size_t dot = name.rfind('.');
    if (dot == name.npos) return false;
    const std::string_view layer = name.substr(0, dot);
    const std::string_view last = layer.substr(layer.rfind('.') == layer.npos ? 0 : layer.rfind('.') + 1);
    return last == "c_attn" || last == "qkv";
}

bool isFused(const PieceEntry& entry, int dim) {
    const auto d = static_cast<size_t>(dim);
    return dim >= 0 && d < entry.lengths.size() && entry.lengths[d] != 0 && entry.lengths[d] % 3 == 0 &&
           entry.globalShape[d] % entry.lengths[d] == 0 && entry.offsets[d] % entry.lengths[d] == 0;
}

// [q_r | k_r | v_r] of a piece.
std::vector<CutBox> thirdsOf(const PieceEntry& entry, size_t d) {
    const std::vector<int64_t> thirds(3, entry.globalShape[d] / 3);
    auto boxes =
        RankCut::share(static_cast<int>(d), thirds, entry.offsets[d], entry.lengths[d]).boxes(entry.lengths);
    for (CutBox& box : boxes) {
        for (size_t k = 0; k < entry.offsets.size(); ++k)
            box.offsets[k] = k == d ? box.offsets[k] : entry.offsets[k];
    }
    return boxes;
}

class DistributedOpener {
  public:
    DistributedOpener(const Source& source, const OpenOptions& options)
        : source_(source),
          options_(options),
          assembly_(source, options, "colossalai", "", "ColossalAI with distributed checkpoint IO") {}

    Result<std::unique_ptr<Reader>> open();

  private:
    // A rank's shard of a tensor.
    struct Piece {
        uint32_t rank = 0;   // index into ranks_
        uint32_t entry = 0;  // index in the rank's metadata
    };

    Status readMetadata();
    void addMetadataFiles();
    void noteForeign();
    static std::string lastPart(std::string_view path);
    Status openWeights();
    // The local name of an entry's `file`. Uses only the last component of the path: with shard=False the
    // writer stores the full path on its own machine.
    std::string placeOf(const std::string& written, const RankFile& rank);
    std::string refuse(const std::string& written, const RankFile& rank);
    void noteMissingRanks();
    void addOtherFiles();
    Mesh mesh() const;
    bool aside(size_t rank) const { return check_.setAside && check_.foreign[rank]; }
    void addTensors();
    int fusedDimOf(std::string_view name, const std::vector<Piece>& pieces);
    void addPiece(std::string_view name, const Piece& piece, int fusedDim);
    uint32_t tensorOf(std::string_view name, const Piece& piece);
    StoredPart partOf(std::string_view name, const Piece& piece, uint32_t tensor, Dims& lengths);
    void addUnlisted();
    void addUnlisted(const RankFile& rank, uint32_t file);
    void addObjects();
    const TensorFile& contents(uint32_t file) { return assembly_.files()[file]; }
    const PieceEntry& entryOf(const Piece& piece) const {
        return ranks_[piece.rank].metadata.entries[piece.entry];
    }
    TensorAssembly::Known fileOf(const Piece& piece) const { return refs_[piece.rank][entryOf(piece).file]; }

    const Source& source_;
    const OpenOptions& options_;
    TensorAssembly assembly_;
    std::vector<RankFile> ranks_;
    SaveCheck check_;
    std::set<std::string> asideFiles_;
    std::vector<std::vector<TensorAssembly::Known>> refs_;  // by rank file and RankMetadata::files
    safetensors::NameSet names_;
    FusedChoice fused_;
    std::set<std::string> placed_;
    bool notedPaths_ = false;
    uint32_t world_ = 1;
};

// ------------------------------------------------------------------ metadata and files

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
    assembly_.note(rule::coverageOverlap, Severity::error,
                   fmt::format("ColossalAI's loader reads the files of both saves and lays the chunks of {} "
                               "over each other; remove those of the other save",
                               counted(shared.size(), "tensor")));
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
        assembly_.note(rule::rankMissing, Severity::error,
                       fmt::format("the highest rank is {}, but only {} are here", last,
                                   counted(present.size(), "rank")));
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
        fmt::format("pp={}: {} in all, numbered tp * stage + tp rank", world_ / check_.tp,
                    counted(world_, "rank"))};
    return mesh;
}

// ------------------------------------------------------------------ tensors

void DistributedOpener::addTensors() {
    std::vector<std::vector<Piece>> pieces;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
        if (aside(r)) continue;
        const RankMetadata& metadata = ranks_[r].metadata;
        for (uint32_t e = 0; e < metadata.entries.size(); ++e) {
            if (names_.insert(metadata.names[e])) pieces.emplace_back();
            pieces[names_.find(metadata.names[e])].push_back({r, e});
        }
    }
    for (size_t n = 0; n < names_.size(); ++n) {
        const int fusedDim = fusedDimOf(names_[n], pieces[n]);
        for (const Piece& piece : pieces[n])
            addPiece(names_[n], piece, fusedDim);
    }
}

// The dimension along which a tensor of q, k and v is cut, where each rank holds its parts of all three;
// -1 where that does not apply, or where nobody said that it does.
int DistributedOpener::fusedDimOf(std::string_view name, const std::vector<Piece>& pieces) {
    const bool stated = fused_.names(name);
    if (!stated && !mayBeFused(name)) return -1;
    const Dims& shape = entryOf(pieces[0]).globalShape;
    int cut = -1;
    for (const Piece& piece : pieces) {
        const PieceEntry& entry = entryOf(piece);
        for (size_t d = 0; d < shape.size() && d < entry.lengths.size(); ++d) {
            if (entry.lengths[d] < shape[d]) cut = static_cast<int>(d);
        }
    }
    if (cut < 0 || shape[static_cast<size_t>(cut)] % 3 != 0) return -1;
    if (stated || fused_.isAutomatic()) return cut;
    assembly_.note(
        rule::layoutFused, Severity::error,
        fmt::format("by its name it holds q, k and v, of which each rank has its part: [q_r | k_r | v_r]. "
                    "The metadata says that the chunks follow each other along dim {}, which would give [q0 "
                    "k0 v0 q1 k1 v1 ...] ({} reads it so)",
                    cut, commandOption("variant", "'fused-qkv=auto'")),
        {}, name);
    return -1;
}

// The tensor in the file that the metadata names; kNone where there is none.
uint32_t DistributedOpener::tensorOf(std::string_view name, const Piece& piece) {
    const uint32_t file = fileOf(piece).index;
    if (file == kNone) return kNone;
    const uint32_t tensor = contents(file).find(name);
    if (tensor == kNone)
        assembly_.wrong(
            fmt::format("'{}' says that it is in this file, which does not hold it", ranks_[piece.rank].name),
            contents(file).name, name);
    return tensor;
}

// What of a stored tensor is the piece, whose lengths may be less than stated.
StoredPart DistributedOpener::partOf(std::string_view name, const Piece& piece, uint32_t tensor,
                                     Dims& lengths) {
    const PieceEntry& entry = entryOf(piece);
    const uint32_t file = fileOf(piece).index;
    const Dims& stored = contents(file).tensors[tensor].shape;
    // A parameter without dimensions may have been saved with one.
    if (lengths.empty() && stored == Dims{1}) return StoredPart::range(file, tensor, 0, 1);
    if (stored != lengths) {
        assembly_.wrong(fmt::format("its chunk of rank {} has shape {}, the metadata says {}",
                                    ranks_[piece.rank].id, formatDims(stored), formatDims(lengths)),
                        contents(file).name, name);
        return StoredPart::whole(file, tensor);
    }
    // A vocabulary that was padded, on one rank: the metadata gives the padded length and the true size.
    const Dims& whole = entry.globalShape;
    const bool padded = !lengths.empty() && std::ranges::count(entry.offsets, 0) == std::ssize(lengths) &&
                        lengths[0] > whole[0] &&
                        std::equal(lengths.begin() + 1, lengths.end(), whole.begin() + 1, whole.end());
    if (!padded) return StoredPart::whole(file, tensor);
    assembly_.note(rule::metaInconsistent, Severity::info,
                   fmt::format("left out: {} of padding behind its {}", counted(lengths[0] - whole[0], "row"),
                               counted(whole[0], "row")),
                   {}, name);
    lengths[0] = whole[0];
    return StoredPart::box(file, tensor, Dims(lengths.size(), 0), lengths);
}

void DistributedOpener::addPiece(std::string_view name, const Piece& piece, int fusedDim) {
    const PieceEntry& entry = entryOf(piece);
    const Path path{keyPart(name)};
    const uint32_t tensor = tensorOf(name, piece);
    TensorAssembly::Piece shard{ranks_[piece.rank].id,
                                StoredPart::whole(kNone, fileOf(piece).id),
                                entry.offsets,
                                entry.lengths,
                                {},
                                true};
    if (tensor != kNone) shard.part = partOf(name, piece, tensor, shard.lengths);
    std::vector<CutBox> boxes{{Dims(entry.lengths.size(), 0), entry.offsets, shard.lengths}};
    if (isFused(entry, fusedDim)) boxes = thirdsOf(entry, static_cast<size_t>(fusedDim));
    DType dtype = DType::float32;  // of a missing one the others tell it
    if (tensor != kNone) dtype = contents(shard.part.file).tensors[tensor].dtype;
    assembly_.addBoxes(path, dtype, entry.globalShape, Role::parameter, shard, std::move(boxes));
}

// Buffers, and further names of tied tensors: in the weight files only.
void DistributedOpener::addUnlisted() {
    std::set<std::pair<uint32_t, uint32_t>> looked;  // rank and file
    for (size_t r = 0; r < ranks_.size(); ++r) {
        for (const auto& [id, file] : refs_[r]) {
            if (file != kNone && looked.emplace(ranks_[r].id, file).second) addUnlisted(ranks_[r], file);
        }
    }
}

void DistributedOpener::addUnlisted(const RankFile& rank, uint32_t file) {
    const RankMetadata& metadata = rank.metadata;
    for (uint32_t t = 0; t < contents(file).tensors.size(); ++t) {
        const StoredTensor& tensor = contents(file).tensors[t];
        if (tensor.special != kNone || names_.find(tensor.name) != SIZE_MAX) continue;
        const std::string_view tied =
            tensor.sameAs == kNone ? std::string_view() : contents(file).tensors[tensor.sameAs].name;
        if (tied.empty() || names_.find(tied) == SIZE_MAX) {
            assembly_.addWhole(file, t, tensor.path, Role::buffer, rank.id);
            continue;
        }
        const size_t e = metadata.names.find(tied);
        if (e == SIZE_MAX) continue;
        const PieceEntry& entry = metadata.entries[e];
        assembly_.addPiece(tensor.path, tensor.dtype, entry.globalShape, Role::parameter,
                           {rank.id, StoredPart::whole(file, t), entry.offsets, tensor.shape, {}});
    }
}

void DistributedOpener::addObjects() {
    std::set<std::string> names;
    for (const auto& refs : refs_) {
        for (const auto& [id, file] : refs) {
            if (file == kNone) continue;
            const uint32_t rank = weightFileId(contents(file).name).value_or(0);
            for (const StoredObject& object : contents(file).objects) {
                if (names.insert(object.name).second)
                    assembly_.addObject(file, object.path, object.value, rank);
            }
        }
    }
}

}  // namespace

Result<std::unique_ptr<Reader>> openDistributed(const Source& source, const OpenOptions& options) {
    return DistributedOpener(source, options).open();
}

}  // namespace shardscope::colossalai
