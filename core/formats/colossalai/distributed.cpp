// The distributed layout: each rank's pieces in files of its own, described by a JSON file of its own.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "formats/colossalai/names.h"
#include "formats/colossalai/rank_metadata.h"
#include "formats/colossalai/readers.h"
#include "formats/colossalai/stale.h"
#include "formats/tensor_files.h"
#include "model/name_pattern.h"

namespace shardscope::colossalai {

namespace {

using safetensors::shown;

constexpr size_t kListed = 40;  // names in one message

// Where the `file` of an entry is. Only the last part of a path counts, and only inside the directory: with
// shard=False the path of the machine that saved stands there.
struct FileRef {
    FileId id = kNone;
    uint32_t contents = kNone;  // in TensorFiles; kNone = missing, refused or broken
};

bool mayBeFused(std::string_view name) {
    const size_t dot = name.rfind('.');
    if (dot == name.npos) return false;
    const std::string_view layer = name.substr(0, dot);
    const std::string_view last = layer.substr(layer.rfind('.') == layer.npos ? 0 : layer.rfind('.') + 1);
    return last == "c_attn" || last == "qkv";
}

class Opener {
  public:
    Opener(const Source& source, const OpenOptions& options)
        : source_(source),
          options_(options),
          files_(std::make_unique<TensorFiles>(source, options)),
          builder_("colossalai", "", "ColossalAI with distributed checkpoint IO") {}

    Result<std::unique_ptr<Reader>> open() {
        SHARDSCOPE_TRY(readVariant());
        SHARDSCOPE_TRY(readMetadata());
        check_ = checkSave(ranks_);
        addMetadataFiles();
        noteForeign();
        SHARDSCOPE_TRY(openWeights());
        noteMissingRanks();
        SHARDSCOPE_TRY(addTensors());
        SHARDSCOPE_TRY(addUnlisted());
        addObjects();
        noteUnreferenced();
        noteFiles();
        finishMesh();
        builder_.setVariant(variant_);
        return makePartReader(std::move(builder_).finish(), std::move(files_), std::move(parts_));
    }

  private:
    struct Piece {
        uint32_t rank = 0;   // index into ranks_
        uint32_t entry = 0;  // in its metadata
    };

    void note(std::string_view rule, Severity severity, std::string message, std::string_view file = {},
              std::string_view tensor = {}) {
        builder_.addNote({std::string(rule), severity, std::move(message), std::string(file),
                          std::string(tensor), std::nullopt});
    }

    // ------------------------------------------------------------------ metadata

    Status readVariant() {
        std::string_view text = options_.variant;
        if (text.empty()) return {};
        constexpr std::string_view kFused = "fused-qkv=";
        if (!text.starts_with(kFused)) {
            return makeError(ErrorCode::usage, fmt::format("'{}' is not a variant of this format", text))
                .withHint("fused-qkv=auto, or fused-qkv=PATTERN,... for the tensors that hold q, k and v");
        }
        text.remove_prefix(kFused.size());
        fusedGiven_ = true;
        if (text == "auto") return {};
        while (!text.empty()) {
            const size_t comma = std::min(text.find(','), text.size());
            if (comma > 0) {
                SHARDSCOPE_ASSIGN(NamePattern pattern,
                                  NamePattern::parse(std::string(text.substr(0, comma))));
                fusedPatterns_.push_back(std::move(pattern));
            }
            text.remove_prefix(std::min(text.size(), comma + 1));
        }
        return {};
    }

    Status readMetadata() {
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind != DirectoryEntry::Kind::file) continue;
            const auto id = metaFileId(entry.name);
            if (!id) continue;
            SHARDSCOPE_TRY(options_.stop.poll());
            SHARDSCOPE_ASSIGN(const auto file, source_.directory->openFile(entry.name));
            if (file->size() > options_.limits.indexJson) {
                return makeError(ErrorCode::limit,
                                 fmt::format("metadata of {} bytes is longer than the {} that are read",
                                             file->size(), options_.limits.indexJson))
                    .inFile(file->path());
            }
            std::string json(file->size(), '\0');
            SHARDSCOPE_TRY(file->readAt(0, std::as_writable_bytes(std::span(json))));
            auto parsed = parseRankMetadata(json);
            if (!parsed.ok()) return std::move(parsed).error().inFile(file->path());
            ranks_.push_back({*id, entry.name, std::move(parsed).value()});
            metaSizes_.push_back(file->size());
        }
        if (ranks_.empty())
            return unsupported(fmt::format("holds no {}*.json", kMetaPrefix)).inFile(source_.display);
        std::vector<size_t> order(ranks_.size());
        for (size_t i = 0; i < order.size(); ++i)
            order[i] = i;
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return ranks_[a].id < ranks_[b].id; });
        std::vector<RankFile> ranks;
        std::vector<uint64_t> sizes;
        for (size_t i : order) {
            ranks.push_back(std::move(ranks_[i]));
            sizes.push_back(metaSizes_[i]);
        }
        ranks_ = std::move(ranks);
        metaSizes_ = std::move(sizes);
        for (size_t r = 1; r < ranks_.size(); ++r) {
            if (ranks_[r].id == ranks_[r - 1].id) {
                note("meta.duplicate", Severity::warning,
                     fmt::format("rank {} is described twice, here and in '{}'", ranks_[r].id,
                                 ranks_[r - 1].name),
                     ranks_[r].name);
            }
        }
        return {};
    }

    bool aside(size_t rank) const { return check_.setAside && check_.foreign[rank]; }

    void addMetadataFiles() {
        for (size_t r = 0; r < ranks_.size(); ++r) {
            FileInfo info;
            info.path = ranks_[r].name;
            info.size = metaSizes_[r];
            info.metadata = true;
            info.rank = ranks_[r].id;
            builder_.addFile(std::move(info));
        }
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
                note("meta.inconsistent", Severity::warning,
                     fmt::format(
                         "gives its writer as rank {}, as '{}' does; ColossalAI's loader keeps one of them",
                         rank, ranks_[it->second].name),
                     ranks_[r].name);
            }
        }
    }

    static std::string listed(const std::vector<std::string>& names) {
        if (names.size() <= kListed) return fmt::format("{}", fmt::join(names, ", "));
        const std::vector<std::string> first(names.begin(), names.begin() + kListed);
        return fmt::format("{} and {} more", fmt::join(first, ", "), names.size() - kListed);
    }

    void noteForeign() {
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
        note("file.stale", Severity::error,
             fmt::format("files of another save lie here: {}; {}{}", listed(files), check_.why,
                         check_.setAside ? ". They are left aside; the others are whole without them" : ""));
        if (!check_.setAside) return;
        for (const std::string& file : files)
            asideFiles_.insert(file);
        note("coverage.overlap", Severity::error,
             fmt::format("ColossalAI's loader reads the files of both saves and lays their pieces over each "
                         "other in {} "
                         "tensors; remove those of the other save",
                         shared.size()));
    }

    // ------------------------------------------------------------------ weight files

    static std::string lastPart(std::string_view path) {
        const size_t slash = path.find_last_of("/\\");
        return std::string(slash == path.npos ? path : path.substr(slash + 1));
    }

    Status openWeights() {
        refs_.resize(ranks_.size());
        for (size_t r = 0; r < ranks_.size(); ++r) {
            if (aside(r)) continue;
            for (const std::string& written : ranks_[r].metadata.files) {
                SHARDSCOPE_ASSIGN(const FileRef ref, openWeight(written, ranks_[r]));
                refs_[r].push_back(ref);
            }
        }
        variant_ = sawTorch_ && !sawSafetensors_ ? "distributed-bin" : "distributed";
        return {};
    }

    Result<FileRef> openWeight(const std::string& written, const RankFile& rank) {
        const std::string name = lastPart(written);
        const bool path = name != written;
        const bool plain = checkRelativeName(name).ok();
        const auto entry =
            plain ? source_.directory->stat(name) : Result<DirectoryEntry>(unsupported("no file name"));
        const bool climbs = written.find("..") != std::string::npos;
        FileInfo info;
        info.rank = rank.id;
        if (!entry.ok() || entry->kind != DirectoryEntry::Kind::file) {
            // A file of this layout that is not here is missing; anything else is no file of a checkpoint.
            const bool missing = plain && !climbs && (!path || weightFileId(name)) && !entry.ok() &&
                                 entry.error().code == ErrorCode::notFound;
            info.path = missing ? name : written;
            if (const auto it = byPath_.find(info.path); it != byPath_.end()) return it->second;
            info.state = missing ? FileInfo::State::missing : FileInfo::State::wrongKind;
            if (!missing) {
                note("security.path", Severity::error,
                     fmt::format("'{}' names '{}', which is no file of this checkpoint; it is not opened",
                                 rank.name, shown(written)),
                     info.path);
            }
            const std::string key = info.path;
            const FileRef ref{builder_.addFile(std::move(info)), kNone};
            byPath_.emplace(key, ref);
            return ref;
        }
        if (const auto it = byPath_.find(name); it != byPath_.end()) return it->second;
        if (climbs) {
            note("security.path", Severity::warning,
                 fmt::format("'{}' names '{}'; the file '{}' beside it was taken", rank.name, shown(written),
                             name),
                 name);
        } else if (path && !notedPaths_) {
            notedPaths_ = true;
            note("meta.inconsistent", Severity::info,
                 fmt::format("the metadata names its files by the path that they were saved to, such as "
                             "'{}'; the files "
                             "here were taken. ColossalAI's own loader does not find them",
                             shown(written)),
                 rank.name);
        }
        info.path = name;
        info.size = entry->size;
        FileRef ref{builder_.addFile(std::move(info)), kNone};
        auto added = files_->add(name, ref.id);
        if (added.ok()) {
            ref.contents = *added;
            ((*files_)[*added].torch ? sawTorch_ : sawSafetensors_) = true;
        } else {
            Error error = std::move(added).error();
            if (error.code == ErrorCode::cancelled) return error;
            if (error.place.rule.empty()) error.place.rule = "meta.inconsistent";
            note(error.place.rule, Severity::error, error.message, name);
            files_->markBroken(ref.id, std::move(error));
        }
        byPath_.emplace(name, ref);
        return ref;
    }

    // ------------------------------------------------------------------ ranks that are not there

    void noteMissingRanks() {
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
            note("rank.missing", Severity::error,
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
                    weights +=
                        fmt::format("{}'{}'", weights.empty() ? " and its weights, such as " : ", ", name);
                if (!weights.empty()) break;
            }
            note(
                "file.missing", Severity::error,
                fmt::format("rank {} of {} (tp={}) is missing: '{}'{}", id, world_, check_.tp, meta, weights),
                meta);
            FileInfo info;
            info.path = meta;
            info.metadata = true;
            info.state = FileInfo::State::missing;
            builder_.addFile(std::move(info));
        }
    }

    // ------------------------------------------------------------------ tensors

    Status addTensors() {
        std::vector<std::vector<Piece>> pieces;
        for (uint32_t r = 0; r < ranks_.size(); ++r) {
            if (aside(r)) continue;
            const RankMetadata& metadata = ranks_[r].metadata;
            for (uint32_t e = 0; e < metadata.entries.size(); ++e) {
                if (names_.insert(metadata.names[e])) pieces.emplace_back();
                pieces[names_.find(metadata.names[e])].push_back({r, e});
            }
        }
        tensorOf_.assign(names_.size(), kNone);
        for (size_t n = 0; n < names_.size(); ++n)
            SHARDSCOPE_TRY(addTensor(n, pieces[n]));
        return {};
    }

    const PieceEntry& entryOf(const Piece& piece) const {
        return ranks_[piece.rank].metadata.entries[piece.entry];
    }
    const FileRef& refOf(const Piece& piece) const { return refs_[piece.rank][entryOf(piece).file]; }

    Status addTensor(size_t n, const std::vector<Piece>& pieces) {
        const std::string_view name = names_[n];
        TensorInfo info;
        info.name = name;
        info.role = Role::parameter;
        info.shape = entryOf(pieces[0]).globalShape;
        bool known = false;
        for (const Piece& piece : pieces) {
            const FileRef& ref = refOf(piece);
            if (ref.contents == kNone) continue;
            const uint32_t t = (*files_)[ref.contents].find(name);
            if (t == kNone) continue;
            info.dtype = (*files_)[ref.contents].tensors[t].dtype;
            known = true;
            break;
        }
        if (!known) {
            // The metadata states no dtype.
            builder_.addSpecial({std::string(name), {keyPart(name)}, "unreadable", "", info.shape, ""});
            note("meta.inconsistent", Severity::error,
                 "none of the files that hold it can be read, and nothing else says what dtype it has",
                 ranks_[pieces[0].rank].name, name);
            return {};
        }
        tensorOf_[n] = static_cast<uint32_t>(builder_.tensorCount());
        auto added = builder_.addTensor(info);
        if (!added.ok()) return std::move(added).error().inFile(ranks_[pieces[0].rank].name);
        const int fusedDim = fusedDimOf(name, pieces);
        for (const Piece& piece : pieces)
            SHARDSCOPE_TRY(addPiece(info, piece, fusedDim));
        return {};
    }

    // The dimension along which a tensor of q, k and v is cut, where each rank holds its parts of all three;
    // -1 where that does not apply, or where nobody said that it does.
    int fusedDimOf(std::string_view name, const std::vector<Piece>& pieces) {
        const bool stated = std::any_of(fusedPatterns_.begin(), fusedPatterns_.end(),
                                        [&](const NamePattern& p) { return p.matches(name); });
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
        if (stated || (fusedGiven_ && fusedPatterns_.empty())) return cut;
        note("layout.fused", Severity::error,
             fmt::format("by its name it holds q, k and v, of which each rank has its part: [q_r | k_r | "
                         "v_r]. The metadata "
                         "says that the pieces follow each other along dim {}, which would give [q0 k0 v0 q1 "
                         "k1 v1 ...]",
                         cut),
             {}, name);
        return -1;
    }

    Status addPiece(const TensorInfo& info, const Piece& piece, int fusedDim) {
        const PieceEntry& entry = entryOf(piece);
        const FileRef& ref = refOf(piece);
        const RankFile& rank = ranks_[piece.rank];
        if (entry.globalShape != info.shape) {
            note("meta.inconsistent", Severity::error,
                 fmt::format("ranks disagree about its shape: {} and {}", formatDims(info.shape),
                             formatDims(entry.globalShape)),
                 rank.name, info.name);
            if (entry.globalShape.size() != info.shape.size()) return {};
        }
        CatalogBuilder::Chunk chunk;
        chunk.rank = rank.id;
        chunk.file = ref.id;
        Dims offsets = entry.offsets, lengths = entry.lengths;
        StoredPart part;
        if (ref.contents != kNone) {
            const TensorFile& file = (*files_)[ref.contents];
            const uint32_t t = file.find(info.name);
            if (t == kNone) {
                note("meta.inconsistent", Severity::error,
                     fmt::format("'{}' says that it is in this file, which does not hold it", rank.name),
                     file.name, info.name);
            } else {
                const StoredTensor& stored = file.tensors[t];
                part.file = ref.contents;
                part.tensor = t;
                chunk.offset = stored.offset;
                chunk.length = stored.bytes;
                if (stored.dtype != info.dtype) {
                    note("meta.inconsistent", Severity::error,
                         fmt::format("ranks disagree about its dtype: {} and {}", dtypeName(info.dtype),
                                     dtypeName(stored.dtype)),
                         file.name, info.name);
                } else if (lengths.empty() && stored.shape == Dims{1}) {
                    // A parameter without dimensions may have been saved with one.
                    part.elements = 1;
                } else if (stored.shape != lengths) {
                    note("meta.inconsistent", Severity::error,
                         fmt::format("its piece of rank {} has shape {}, the metadata says {}", rank.id,
                                     formatDims(stored.shape), formatDims(lengths)),
                         file.name, info.name);
                }
                cutPadding(info, entry, stored, lengths, part);
            }
        }
        if (fusedDim < 0 || !addFused(chunk, entry, static_cast<size_t>(fusedDim), part, info.shape)) {
            chunk.offsets = offsets;
            chunk.lengths = lengths;
            SHARDSCOPE_TRY(builder_.addChunk(chunk));
            parts_.push_back(std::move(part));
        }
        return {};
    }

    // A vocabulary that was padded, on one rank: the metadata gives the padded length and the true size.
    void cutPadding(const TensorInfo& info, const PieceEntry& entry, const StoredTensor& stored,
                    Dims& lengths, StoredPart& part) {
        if (lengths.empty() || stored.shape != entry.lengths || entry.globalShape != info.shape) return;
        if (std::any_of(entry.offsets.begin(), entry.offsets.end(), [](int64_t o) { return o != 0; })) return;
        for (size_t d = 1; d < lengths.size(); ++d) {
            if (lengths[d] != info.shape[d]) return;
        }
        if (lengths[0] <= info.shape[0]) return;
        note("meta.inconsistent", Severity::info,
             fmt::format("{} rows of padding behind its {} rows are left out", lengths[0] - info.shape[0],
                         info.shape[0]),
             {}, info.name);
        lengths[0] = info.shape[0];
        part.offsets.assign(lengths.size(), 0);
        part.lengths = lengths;
    }

    bool addFused(CatalogBuilder::Chunk chunk, const PieceEntry& entry, size_t d, const StoredPart& part,
                  const Dims& shape) {
        if (d >= entry.lengths.size() || entry.lengths[d] == 0 || entry.lengths[d] % 3 != 0 ||
            shape[d] % entry.lengths[d] != 0 || entry.offsets[d] % entry.lengths[d] != 0) {
            return false;
        }
        const int64_t width = entry.lengths[d] / 3;
        const int64_t index = entry.offsets[d] / entry.lengths[d];
        for (int64_t third = 0; third < 3; ++third) {
            Dims offsets = entry.offsets, lengths = entry.lengths;
            offsets[d] = third * (shape[d] / 3) + index * width;
            lengths[d] = width;
            chunk.offsets = offsets;
            chunk.lengths = lengths;
            if (!builder_.addChunk(chunk).ok()) return false;
            StoredPart third_ = part;
            third_.offsets.assign(lengths.size(), 0);
            third_.offsets[d] = third * width;
            third_.lengths = lengths;
            parts_.push_back(std::move(third_));
        }
        return true;
    }

    // ------------------------------------------------------------------ what the metadata does not list

    // Buffers, and further names of tied tensors: in the weight files only.
    Status addUnlisted() {
        struct Copy {
            uint32_t rank = 0, contents = 0, tensor = 0;
        };
        safetensors::NameSet names;
        std::vector<std::vector<Copy>> copies;
        std::set<std::pair<uint32_t, uint32_t>> looked;
        for (uint32_t r = 0; r < ranks_.size(); ++r) {
            for (const FileRef& ref : refs_[r]) {
                if (ref.contents == kNone || !looked.insert({ranks_[r].id, ref.contents}).second) continue;
                const TensorFile& file = (*files_)[ref.contents];
                for (uint32_t t = 0; t < file.tensors.size(); ++t) {
                    const StoredTensor& tensor = file.tensors[t];
                    if (tensor.special != kNone || names_.find(tensor.name) != SIZE_MAX) continue;
                    if (names.insert(tensor.name)) copies.emplace_back();
                    copies[names.find(tensor.name)].push_back({r, ref.contents, t});
                }
            }
        }
        for (size_t n = 0; n < names.size(); ++n) {
            const StoredTensor& first = (*files_)[copies[n][0].contents].tensors[copies[n][0].tensor];
            TensorInfo info;
            info.name = first.name;
            info.path = first.path;
            info.dtype = first.dtype;
            info.shape = first.shape;
            info.role = Role::buffer;
            const size_t tied =
                first.sameAs == kNone
                    ? SIZE_MAX
                    : names_.find((*files_)[copies[n][0].contents].tensors[first.sameAs].name);
            const bool alias = tied != SIZE_MAX && tensorOf_[tied] != kNone;
            if (alias) {
                info.aliasOf = tensorOf_[tied];
                info.role = Role::parameter;
                const RankMetadata& metadata = ranks_[copies[n][0].rank].metadata;
                info.shape = metadata.entries[metadata.names.find(names_[tied])].globalShape;
            }
            SHARDSCOPE_TRY(builder_.addTensor(info));
            for (const Copy& copy : copies[n]) {
                const TensorFile& file = (*files_)[copy.contents];
                const StoredTensor& stored = file.tensors[copy.tensor];
                CatalogBuilder::Chunk chunk{
                    ranks_[copy.rank].id, file.id, stored.offset, stored.bytes, {}, {}, std::nullopt};
                Dims offsets(stored.shape.size(), 0);
                if (alias) {
                    const RankMetadata& metadata = ranks_[copy.rank].metadata;
                    const size_t entry = metadata.names.find(names_[tied]);
                    if (entry == SIZE_MAX) continue;
                    offsets = metadata.entries[entry].offsets;
                } else if (stored.shape != info.shape || stored.dtype != info.dtype) {
                    note("meta.inconsistent", Severity::error,
                         fmt::format("the metadata does not list it, and ranks hold different tensors of "
                                     "this name: {} {} and {} {}",
                                     dtypeName(info.dtype), formatDims(info.shape), dtypeName(stored.dtype),
                                     formatDims(stored.shape)),
                         file.name, info.name);
                    continue;
                }
                chunk.offsets = offsets;
                chunk.lengths = stored.shape;
                SHARDSCOPE_TRY(builder_.addChunk(chunk));
                parts_.push_back({copy.contents, copy.tensor, {}, {}, 0, -1});
            }
        }
        return {};
    }

    void addObjects() {
        std::set<std::string> names;
        for (uint32_t f = 0; f < files_->size(); ++f) {
            const TensorFile& file = (*files_)[f];
            for (const StoredObject& object : file.objects) {
                if (!names.insert(object.name).second) continue;
                ObjectInfo info;
                info.name = object.name;
                info.path = object.path;
                info.rank = weightFileId(file.name).value_or(0);
                info.file = file.id;
                info.value = object.value;
                builder_.addObject(std::move(info));
            }
        }
    }

    // ------------------------------------------------------------------ files

    void noteUnreferenced() {
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind != DirectoryEntry::Kind::file || metaFileId(entry.name) ||
                byPath_.contains(entry.name))
                continue;
            FileInfo info;
            info.path = entry.name;
            info.size = entry.size;
            const auto id = weightFileId(entry.name);
            if (id) info.rank = *id;
            // What was set aside is noted already.
            info.referenced = asideFiles_.contains(entry.name);
            builder_.addFile(std::move(info));
        }
    }

    void noteFiles() {
        std::set<std::string> seen;
        for (uint32_t f = 0; f < files_->size(); ++f) {
            for (const Note& n : (*files_)[f].notes) {
                // What is so in all files is said once.
                if (n.severity == Severity::info && !seen.insert(n.rule + n.message).second) continue;
                builder_.addNote(n);
            }
        }
    }

    void finishMesh() {
        builder_.setRankCount(world_);
        if (world_ % check_.tp != 0) return;
        Mesh mesh;
        mesh.axes = {{"pp", world_ / check_.tp}, {"tp", check_.tp}};
        mesh.evidence = {
            fmt::format("tp={}: the pieces of cut tensors are 1/{} of them", check_.tp, check_.tp),
            fmt::format("pp={}: {} ranks in all, numbered tp * stage + tp rank", world_ / check_.tp, world_)};
        builder_.setMesh(std::move(mesh));
    }

    const Source& source_;
    const OpenOptions& options_;
    std::unique_ptr<TensorFiles> files_;
    CatalogBuilder builder_;
    std::vector<StoredPart> parts_;
    std::vector<RankFile> ranks_;
    std::vector<uint64_t> metaSizes_;
    SaveCheck check_;
    std::set<std::string> asideFiles_;
    std::vector<std::vector<FileRef>> refs_;  // by rank file and RankMetadata::files
    std::map<std::string, FileRef> byPath_;
    safetensors::NameSet names_;
    std::vector<TensorId> tensorOf_;
    bool fusedGiven_ = false;
    std::vector<NamePattern> fusedPatterns_;
    bool notedPaths_ = false, sawTorch_ = false, sawSafetensors_ = false;
    uint32_t world_ = 1;
    std::string variant_;
};

}  // namespace

Result<std::unique_ptr<Reader>> openDistributed(const Source& source, const OpenOptions& options) {
    return Opener(source, options).open();
}

}  // namespace shardscope::colossalai
