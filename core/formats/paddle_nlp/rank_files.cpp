#include "formats/paddle_nlp/rank_files.h"

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/json_value.h"
#include "formats/paddle_nlp/readers.h"
#include "model/value_make.h"
#include "storage/open_files.h"

namespace shardscope::paddle_nlp {

Result<std::string> metadataText(const Source& source, const OpenOptions& options,
                                 const DirectoryEntry& entry) {
    SHARDSCOPE_ASSIGN(const auto file, source.directory->openFile(entry.name));
    return wholeText(*file, options.limits.indexJson);
}

namespace {

constexpr std::string_view kMetaName = "model_meta.json";
constexpr std::string_view kShardMeta = "shard_meta.";
constexpr uint64_t kMaxRanks = 1 << 20;
constexpr size_t kListedFiles = 20;

class Listing {
  public:
    Listing(const Source& source, const OpenOptions& options, TensorAssembly& assembly)
        : source_(source), options_(options), assembly_(assembly) {}

    Result<HybridFiles> run() {
        SHARDSCOPE_TRY(sortEntries());
        if (out_.files.empty() && !out_.hasMeta) {
            return unsupported("holds no model_state*.pdparams, optimizer*.pdopt or model_meta.json")
                .inFile(source_.display);
        }
        SHARDSCOPE_TRY(findDegrees());
        for (RankFile& file : out_.files) {
            SHARDSCOPE_TRY(options_.stop.poll());
            if (file.state == RankFile::State::read) SHARDSCOPE_TRY(readRankFile(file));
        }
        setAsideByContent();
        SHARDSCOPE_TRY(addMissing());
        std::stable_sort(out_.files.begin(), out_.files.end(), [](const RankFile& a, const RankFile& b) {
            const RankPlace x = a.at(), y = b.at();
            if (!x.sameGroup(y)) return x < y;
            return std::tie(a.name.optimizer, x.shard, a.path) < std::tie(b.name.optimizer, y.shard, b.path);
        });
        noteStale();
        for (RankFile& file : out_.files)
            addToCatalog(file);
        return std::move(out_);
    }

  private:
    void note(std::string_view rule, Severity severity, std::string message, std::string_view file,
              Note::Lacks lacks = Note::Lacks::nothing, std::optional<uint64_t> offset = {}) {
        assembly_.builder().addNote(noteOf(rule, severity, std::move(message), file, {}, lacks, offset));
    }

    void addOther(const DirectoryEntry& entry, bool metadata, bool referenced = true) {
        assembly_.addOther(
            {.path = entry.name, .size = entry.size, .metadata = metadata, .referenced = referenced});
    }

    // ------------------------------------------------------------------ what is there

    // What PaddleNLP's trainer and its models put beside the tensors.
    static bool areKnownSidecars(std::string_view name) {
        for (std::string_view known :
             {"scheduler.pdparams", "scaler.pdparams", "scalar.pdparams", "training_args.bin",
              "trainer_state.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json",
              "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt",
              "lora_config.json", "README.md"}) {
            if (name == known) return true;
        }
        return name.starts_with("rng_state") || name.starts_with("saved_signal") ||
               name.ends_with(".model") || name.starts_with(".checkpoint_done") || name.ends_with(".jinja");
    }

    Status sortEntries() {
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind != DirectoryEntry::Kind::file) continue;
            SHARDSCOPE_TRY(options_.stop.poll());
            const std::string path = source_.directory->path() + "/" + entry.name;
            if (auto name = parseRankFileName(entry.name)) {
                out_.files.push_back({.name = std::move(*name), .path = entry.name, .size = entry.size});
            } else if (entry.name == kMetaName) {
                SHARDSCOPE_ASSIGN(const std::string json, metadataText(source_, options_, entry));
                auto meta = parseModelMeta(json);
                if (!meta.ok()) return std::move(meta).error().inFile(path);
                // Groups of older files stay.
                meta->groups.merge(out_.meta.groups);
                out_.meta = std::move(meta).value();
                out_.hasMeta = true;
                addOther(entry, true);
            } else if (entry.name.starts_with(kShardMeta) && entry.name.ends_with(".json")) {
                std::string_view middle = entry.name;
                middle.remove_prefix(kShardMeta.size());
                middle.remove_suffix(std::min(middle.size(), std::string_view("json").size()));
                if (middle.ends_with('.')) middle.remove_suffix(1);
                const auto at = parseGroupName(middle);
                if (!at) {
                    addOther(entry, false, false);
                    continue;
                }
                SHARDSCOPE_ASSIGN(const std::string json, metadataText(source_, options_, entry));
                auto group = parseShardMeta(json);
                if (!group.ok()) return std::move(group).error().inFile(path);
                out_.meta.groups.emplace(*at, std::move(group).value());
                out_.hasMeta = true;
                addOther(entry, true);
            } else if (entry.name == "config.json") {
                SHARDSCOPE_ASSIGN(const std::string json, metadataText(source_, options_, entry));
                const auto config = modelSizesOf(jsonValue(json));
                out_.config = config.value_or(ModelSizes{});
                if (!config)
                    note(rule::metaInconsistent, Severity::warning,
                         "config.json is not used: it is not a JSON object", entry.name);
                addOther(entry, true);
            } else {
                const bool known = areKnownSidecars(entry.name);
                if (known) out_.beside.push_back(entry.name);
                if (entry.name == "scheduler.pdparams") readSchedule(entry);
                addOther(entry, known, known);
            }
        }
        return {};
    }

    // A constant learning rate leaves nothing in the optimizer's files, but the scheduler has a file of its
    // own.
    void readSchedule(const DirectoryEntry& entry) {
        const auto saved = assembly_.files().add(entry.name);
        if (!saved.ok()) {
            note(rule::metaInconsistent, Severity::error,
                 fmt::format("the state of the scheduler cannot be read: {}", saved.error().message),
                 entry.name);
            return;
        }
        NestedDict schedule;
        for (const StoredObject& object : assembly_.files()[*saved].objects)
            schedule.add(object.path, 0, object.value);
        if (!assembly_.files()[*saved].objects.empty()) out_.schedule = std::move(schedule).finish();
    }

    // ------------------------------------------------------------------ degrees

    Status findDegrees() {
        uint32_t tp = 1, pp = 1, sharding = 1, moe = 1;
        bool weights = false, weightsByTp = false;
        for (const RankFile& file : out_.files) {
            // A coordinate is only named where there are two ranks or more.
            const auto degree = [](uint32_t at) { return at == kNotNamed ? 1 : std::max(at + 1, 2U); };
            tp = std::max(tp, degree(file.name.tp));
            pp = std::max(pp, degree(file.name.pp));
            sharding = std::max(sharding, degree(file.name.shard));
            moe = std::max(moe, degree(file.name.moe));
            if (!file.name.optimizer) {
                weights = true;
                weightsByTp = weightsByTp || file.name.tp != kNotNamed;
            }
        }
        for (const auto& [at, group] : out_.meta.groups) {
            // Older files state no degrees.
            if (out_.meta.tp == 0) tp = std::max(tp, at.first + 1);
            if (out_.meta.pp == 0) pp = std::max(pp, at.second + 1);
        }
        out_.tp = out_.meta.tp ? out_.meta.tp : tp;
        out_.pp = out_.meta.pp ? out_.meta.pp : pp;
        out_.sharding = out_.meta.sharding ? out_.meta.sharding : sharding;
        out_.moe = moe;
        out_.degreesStated = out_.meta.tp && out_.meta.pp && out_.meta.sharding;
        out_.wholeWeights = weights && !weightsByTp && out_.tp > 1;
        const uint64_t ranks = uint64_t{out_.tp} * out_.pp;
        if (ranks > kMaxRanks || ranks * out_.sharding > kMaxRanks ||
            ranks * out_.sharding * moe > kMaxRanks) {
            return makeError(ErrorCode::limit,
                             fmt::format("tp={}, pp={}, sharding={}, moe={} are more than {}", out_.tp,
                                         out_.pp, out_.sharding, moe, counted(kMaxRanks, "rank")))
                .inFile(source_.display);
        }
        for (RankFile& file : out_.files) {
            if (const RankPlace at = file.at();
                at.tp >= out_.tp || at.pp >= out_.pp || at.shard >= out_.sharding) {
                file.state = RankFile::State::stale;
                why_ = fmt::format("{} states tp={}, pp={}, sharding={}", kMetaName, out_.tp, out_.pp,
                                   out_.sharding);
            }
        }
        return {};
    }

    Status readRankFile(RankFile& file) {
        const auto broken = [&](Error error) -> Status {
            if (error.code == ErrorCode::cancelled) return error;
            file.state = RankFile::State::broken;
            const bool truncated =
                error.code == ErrorCode::damaged &&
                (error.location.rule == rule::fileTruncated || error.location.offset >= file.size);
            if (truncated) error.location.rule = rule::fileTruncated;
            if (error.location.rule.empty()) error.location.rule = rule::metaInconsistent;
            note(error.location.rule, Severity::error,
                 fmt::format("the file cannot be read: {}", error.message), file.path,
                 file.name.optimizer ? Note::Lacks::optimizerState : Note::Lacks::anything,
                 error.location.offset);
            file.why = std::move(error);
            return {};
        };
        const auto added = assembly_.files().add(file.path);
        if (!added.ok()) return broken(added.error());
        if (assembly_.files()[*added].kind != TensorFile::Kind::paddle)
            return broken(damaged("the file is not one of paddle.save", 0));
        file.contents = *added;
        file.content = &assembly_.files()[*added];
        file.size = file.content->size;
        return {};
    }

    // ------------------------------------------------------------------ files of another save

    // Without model_meta.json a save over one with more ranks shows in what the higher ones hold: cut finer,
    // or held by the lower ones already.
    void setAsideByContent() {
        if (out_.degreesStated) return;
        if (!out_.wholeWeights)
            setAside(
                out_.tp, &RankPlace::tp, [&](uint32_t k) { return finerFrom(k); },
                "ranks from tp{0:02} on hold shards of tp={1}");
        setAside(
            out_.pp, &RankPlace::pp, [&](uint32_t k) { return repeatedFrom(&RankPlace::pp, k, false); },
            "the stages before pp{0:02} hold all that it and later ones do");
        setAside(
            out_.sharding, &RankPlace::shard,
            [&](uint32_t k) { return repeatedFrom(&RankPlace::shard, k, true); },
            "the ranks before shard{0:02} hold all that it and later ones do");
    }

    using Axis = uint32_t RankPlace::*;

    // Lowers the degree to the first k from which on ranks are those of another save.
    void setAside(uint32_t& degree, Axis axis, const std::function<bool(uint32_t k)>& isOther,
                  std::string_view why) {
        for (uint32_t k = 1; k < degree; ++k) {
            if (!isOther(k)) continue;
            for (RankFile& file : out_.files) {
                if (file.at().*axis < k) continue;
                file.state = RankFile::State::stale;
                file.content = &kNotRead;
            }
            why_ = fmt::format(fmt::runtime(why), k, degree);
            degree = k;
            return;
        }
    }

    // Whether all weights on ranks from k on are as those of `tp` ranks, the others as those of k.
    bool finerFrom(uint32_t k) const {
        std::map<std::pair<uint32_t, std::string_view>, const Dims*> low, high;
        std::set<uint32_t> seen;
        for (const RankFile& file : out_.files) {
            if (!file.readable() || file.name.optimizer) continue;
            const RankPlace at = file.at();
            seen.insert(at.tp);
            auto& side = at.tp < k ? low : high;
            for (const StoredTensor& entry : file.content->tensors) {
                const auto [it, fresh] = side.try_emplace({at.pp, entry.name}, &entry.shape);
                if (!fresh && *it->second != entry.shape) return false;
            }
        }
        if (seen.size() != out_.tp || high.empty()) return false;
        bool finer = false;
        for (const auto& [key, shape] : high) {
            const auto it = low.find(key);
            if (it == low.end() || it->second->size() != shape->size()) return false;
            size_t different = 0;
            for (size_t d = 0; d < shape->size(); ++d) {
                const int64_t a = (*it->second)[d], b = (*shape)[d];
                if (a == b) continue;
                ++different;
                if (a > kMaxDim / k || b > kMaxDim / out_.tp || a * k != b * out_.tp) return false;
            }
            if (different > 1) return false;
            finer = finer || different == 1;
        }
        return finer;
    }

    // Whether what ranks from k on hold is held by the lower ones too. Flat pieces say nothing: each rank has
    // one of every parameter.
    bool repeatedFrom(Axis axis, uint32_t k, bool optimizer) const {
        using Key = std::tuple<uint32_t, uint32_t, uint32_t, std::string_view>;
        std::set<Key> low, high;
        for (const RankFile& file : out_.files) {
            if (!file.readable() || file.name.optimizer != optimizer) continue;
            for (const StoredTensor& entry : file.content->tensors) {
                if (optimizer && entry.shape.size() < 2) continue;
                const RankPlace at = file.at();
                (at.*axis < k ? low : high).insert({at.tp, optimizer ? at.pp : 0, at.moe, entry.name});
            }
        }
        if (high.empty() || low.empty()) return false;
        // Stage 3 keeps small parameters whole on every rank; then all ranks hold the same.
        if (optimizer && low == high) return false;
        return std::includes(low.begin(), low.end(), high.begin(), high.end());
    }

    void noteStale() {
        std::vector<std::string> names;
        for (const RankFile& file : out_.files) {
            if (file.state == RankFile::State::stale) names.push_back(file.path);
        }
        if (names.empty()) return;
        note(rule::fileStale, Severity::warning,
             fmt::format("files of another save are here: {}; {}. They are left aside; PaddleNLP's own "
                         "converter takes "
                         "them for ranks of this one",
                         listed(names, kListedFiles), why_),
             names[0]);
    }

    // ------------------------------------------------------------------ files that should be there

    Status addMissing() {
        struct Kind {
            bool byTp = false, byShard = false, byMoe = false;
            std::string base;
            std::set<RankPlace> present;
        };
        Kind kinds[2];
        for (const RankFile& file : out_.files) {
            if (file.state == RankFile::State::stale) continue;
            Kind& kind = kinds[file.name.optimizer];
            kind.base = file.name.base;
            kind.byTp |= file.name.tp != kNotNamed;
            kind.byShard |= file.name.shard != kNotNamed;
            kind.byMoe |= file.name.moe != kNotNamed;
            kind.present.insert(file.at());
        }
        for (const bool optimizer : {false, true}) {
            const Kind& kind = kinds[optimizer];
            if (kind.present.empty()) continue;
            const uint32_t tps = kind.byTp || !out_.wholeWeights || optimizer ? out_.tp : 1;
            const uint32_t shards = kind.byShard || optimizer ? out_.sharding : 1;
            const uint32_t moes = kind.byMoe ? out_.moe : 1;
            const uint64_t wanted = uint64_t{tps} * out_.pp * shards * moes;
            if (wanted > kind.present.size() && wanted - kind.present.size() > 10'000) {
                return makeError(ErrorCode::limit, fmt::format("{} of ranks are missing of {}",
                                                               counted(wanted - kind.present.size(), "file"),
                                                               countText(wanted)))
                    .inFile(source_.display);
            }
            for (uint64_t n = 0; n < wanted; ++n) {
                // The sharding rank fastest, then tp, pp and moe.
                const auto rest = static_cast<uint32_t>(n / shards);
                const RankPlace at{.pp = rest / tps % out_.pp,
                                   .tp = rest % tps,
                                   .moe = rest / tps / out_.pp,
                                   .shard = static_cast<uint32_t>(n % shards)};
                if (kind.present.contains(at)) continue;
                RankFile file;
                file.name = {optimizer,
                             kind.base,
                             tps > 1 ? at.tp : kNotNamed,
                             out_.pp > 1 ? at.pp : kNotNamed,
                             shards > 1 ? at.shard : kNotNamed,
                             moes > 1 ? at.moe : kNotNamed};
                file.path = formatRankFileName(file.name);
                file.state = RankFile::State::missing;
                note(rule::fileMissing, Severity::error,
                     fmt::format("'{}' is missing: the {} of tp {}, pp {}{}", file.path,
                                 optimizer ? "optimizer state" : "weights", at.tp, at.pp,
                                 shards > 1 ? fmt::format(", sharding rank {}", at.shard) : ""),
                     file.path, optimizer ? Note::Lacks::optimizerState : Note::Lacks::anything);
                out_.files.push_back(std::move(file));
            }
        }
        return {};
    }

    void addToCatalog(RankFile& file) {
        const bool stale = file.state == RankFile::State::stale;
        file.id =
            assembly_.addOther({.path = file.path,
                                .size = file.size,
                                .state = file.state == RankFile::State::missing ? FileInfo::State::missing
                                                                                : FileInfo::State::present,
                                .rank = stale ? kNone : out_.rankOf(file.at())});
        if (file.contents != kNone) assembly_.files().setPlace(file.contents, file.id);
        if (file.state == RankFile::State::broken) assembly_.files().markBroken(file.id, file.why);
    }

    const Source& source_;
    const OpenOptions& options_;
    TensorAssembly& assembly_;
    HybridFiles out_;
    std::string why_;
};

}  // namespace

Result<HybridFiles> readHybridFiles(const Source& source, const OpenOptions& options,
                                    TensorAssembly& assembly) {
    return Listing(source, options, assembly).run();
}

}  // namespace shardscope::paddle_nlp
