// The hybrid-parallel layout: weights and optimizer state of each rank in files of their own. Sources:
// paddlenlp/trainer/trainer.py, trainer/utils/sharding_io.py, trainer/utils/ckpt_converter.py;
// paddle/distributed/fleet/utils/tensor_fusion_helper.py for flattened parameters.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/units.h"
#include "formats/paddle_nlp/parameters.h"
#include "formats/paddle_nlp/pieces.h"
#include "formats/paddle_nlp/rank_files.h"
#include "formats/paddle_nlp/readers.h"
#include "formats/paddle_nlp/tp_axis.h"
#include "model/value_make.h"

namespace shardscope::paddle_nlp {

namespace {

// By parameter.
struct ParameterAxes {
    std::vector<int> axis;  // TpAnswer::kReplicated = not sharded
    std::vector<const FamilyRule*> rules;
    // Names of experts that one tensor-parallel rank holds whole and the others lack: here these ranks are
    // expert-parallel.
    std::set<std::string> owned;
    std::vector<std::string> evidence;  // sentences for the mesh
};

constexpr size_t kSample = 4096;  // bytes of each parameter that are compared over ranks

// The first bytes of an entry; empty if unavailable.
Result<std::string> sampleOf(const Source& source, const StoredShard& held) {
    const PaddleArray& array = held.entry->parts[0];
    if (array.raw == PaddleArray::Raw::inMemory) return array.bytes.substr(0, kSample);
    if (array.raw != PaddleArray::Raw::plain) return std::string();
    std::string bytes(static_cast<size_t>(std::min<uint64_t>(kSample, array.length)), '\0');
    SHARDSCOPE_ASSIGN(const auto file, source.directory->openFile(held.file->path));
    if (!rangeFits(array.offset, bytes.size(), file->size())) return std::string();
    SHARDSCOPE_TRY(file->readAt(array.offset, std::as_writable_bytes(std::span(bytes))));
    return bytes;
}

// Whether the first bytes of a parameter are the same on all tensor-parallel ranks.
Result<TpQuestion::Content> compareRanks(const Source& source, uint32_t degree, const Parameter& p) {
    using Content = TpQuestion::Content;
    const State* state = nullptr;
    for (const State& s : p.states) {
        if (s.isCounter()) continue;
        if (!state || s.name.empty() || (s.name == "master_weight" && !state->name.empty())) state = &s;
    }
    if (!state || state->held.empty()) return Content::unknown;
    const RankPlace first = state->held[0].at();
    std::map<uint32_t, const StoredShard*> firsts;  // by tensor-parallel rank, of the lowest sharding rank
    for (const StoredShard& held : state->held) {
        const RankPlace at = held.at();
        if (at.pp != first.pp || at.moe != first.moe) continue;
        const auto [it, fresh] = firsts.try_emplace(at.tp, &held);
        if (!fresh && at.shard < it->second->at().shard) it->second = &held;
    }
    if (firsts.size() < degree) return Content::unknown;
    std::string sample;
    bool constant = true, same = true;
    for (const auto& [tp, held] : firsts) {
        if (held->entry->shape != firsts.begin()->second->entry->shape || held->entry->parts.empty())
            return Content::unknown;
        SHARDSCOPE_ASSIGN(const std::string bytes, sampleOf(source, *held));
        if (bytes.empty()) return Content::unknown;
        const size_t width = dtypeBytes(held->entry->parts[0].dtype);
        for (size_t at = width; at + width <= bytes.size(); at += width)
            constant = constant && std::memcmp(bytes.data(), bytes.data() + at, width) == 0;
        if (tp == firsts.begin()->first) {
            sample = bytes;
        } else {
            same = same && bytes == sample;
        }
    }
    if (!same) return Content::differs;
    // Few elements say as little as equal ones.
    return constant ? Content::sameConstant : Content::same;
}

// Experts over the tensor-parallel group are numbered through, and each is on one rank. Only where no file is
// missing, and every rank has experts of its own.
std::set<std::string> expertsOfRanks(const HybridFiles& files, const std::vector<Parameter>& parameters) {
    if (std::ranges::any_of(files.files, &RankFile::lost)) return {};
    std::set<std::string> owned;
    std::set<uint32_t> ranks;
    for (const Parameter& p : parameters) {
        if (p.name.find(".experts.") == std::string::npos || p.whole) continue;
        std::set<uint32_t> holders;
        for (const State& state : p.states) {
            for (const StoredShard& held : state.held)
                holders.insert(held.at().tp);
        }
        if (holders.size() != 1) return {};
        ranks.insert(*holders.begin());
        owned.insert(p.name);
    }
    return ranks.size() == files.tp ? owned : std::set<std::string>{};
}

// Skips `disagreeing`: names of parameters whose ranks have different shapes. Errors: as concludeTpAxes(),
// io.
Result<ParameterAxes> concludeParameterAxes(const Source& source, const HybridFiles& files,
                                            const std::vector<Parameter>& parameters,
                                            const std::set<std::string>& disagreeing,
                                            const std::vector<TpRule>& stated) {
    ParameterAxes out;
    out.axis.assign(parameters.size(), TpAnswer::kReplicated);
    out.rules.assign(parameters.size(), nullptr);
    if (files.tp < 2) return out;
    out.owned = expertsOfRanks(files, parameters);
    if (!out.owned.empty()) {
        out.evidence.push_back(fmt::format("tp={}: {}, each whole on the one rank that holds it, such as {}",
                                           files.tp, counted(out.owned.size(), "expert"),
                                           *out.owned.begin()));
    }
    std::vector<TpQuestion> questions;
    std::vector<size_t> asked;
    for (size_t i = 0; i < parameters.size(); ++i) {
        const Parameter& p = parameters[i];
        if (p.local.empty() || disagreeing.contains(p.name) || out.owned.contains(p.name)) continue;
        TpQuestion q;
        q.name = p.name;
        q.local = p.local.begin()->second;
        q.whole = p.whole;
        q.distributed = p.distributed;
        if (!q.whole && !q.distributed) {
            SHARDSCOPE_ASSIGN(q.content, compareRanks(source, files.tp, p));
        }
        questions.push_back(std::move(q));
        asked.push_back(i);
    }
    SHARDSCOPE_ASSIGN(const std::vector<TpAnswer> answers,
                      concludeTpAxes(questions, files.tp, files.config, stated));
    struct Reason {
        size_t count = 0;
        std::string example;
    };
    std::map<std::pair<int, std::string>, Reason> reasons;
    for (size_t k = 0; k < answers.size(); ++k) {
        out.axis[asked[k]] = answers[k].axis;
        out.rules[asked[k]] = answers[k].rule;
        Reason& reason = reasons[{answers[k].axis, answers[k].why}];
        if (++reason.count == 1) reason.example = questions[k].name;
    }
    for (const auto& [key, reason] : reasons) {
        out.evidence.push_back(
            fmt::format("tp={}: {} {} ({}), such as {}", files.tp, counted(reason.count, "parameter"),
                        key.first == TpAnswer::kReplicated ? "whole on every rank"
                                                           : fmt::format("sharded along dim {}", key.first),
                        key.second, reason.example));
    }
    return out;
}

constexpr size_t kMaxNotes = 200;

class HybridOpener {
  public:
    HybridOpener(const Source& source, const OpenOptions& options)
        : source_(source),
          options_(options),
          assembly_(source, options, "paddlenlp", "hybrid", "PaddleNLP", TensorFiles::Writer::paddle) {
        assembly_.limitNotes(kMaxNotes);
    }

    Result<std::unique_ptr<Reader>> open() {
        SHARDSCOPE_ASSIGN(fused_, FusedChoice::parse(options_.variant, "several projections"));
        SHARDSCOPE_ASSIGN(stated_, statedByUser(options_));
        SHARDSCOPE_ASSIGN(files_, readHybridFiles(source_, options_, assembly_));
        for (const RankFile& file : files_.files) {
            if (file.lost()) lost_.push_back(&file);
        }
        parameters_ = gatherParameters(files_, assembly_.builder());
        SHARDSCOPE_TRY(shapeParameters());
        SHARDSCOPE_TRY(concludeAxes());
        findStateKinds();
        for (size_t p = 0; p < parameters_.size(); ++p) {
            SHARDSCOPE_TRY(options_.stop.poll());
            SHARDSCOPE_TRY(addParameter(p));
        }
        noteStateless();
        addObjects();
        noteBeside();
        noteMasters();
        return finish();
    }

  private:
    // ------------------------------------------------------------------ shapes

    // The shape on one tensor-parallel rank, and what disagrees with it.
    Status shapeParameters() {
        for (Parameter& p : parameters_) {
            if (p.local.empty()) shapeByStates(p);
            if (p.local.empty()) continue;
            const Dims& first = p.local.begin()->second;
            for (const auto& [tp, shape] : p.local) {
                if (shape == first) continue;
                assembly_.wrong(fmt::format("ranks disagree about its shape: {} on tp {}, {} on tp {}",
                                            formatDims(first), p.local.begin()->first, formatDims(shape), tp),
                                {}, p.name, Note::Lacks::anything);
                disagreeing_.insert(p.name);
                break;
            }
        }
        return {};
    }

    // Optimizer state that is as large as its parameter has the shape of it.
    void shapeByStates(Parameter& p) {
        for (const State& state : p.states) {
            if (state.isWeight() || state.isCounter()) continue;
            for (const StoredShard& held : state.held) {
                // One dimension may be that of a flattened slice.
                if (held.entry->shape.size() < 2 && !(p.whole && *p.whole == held.entry->shape)) continue;
                p.local.emplace(held.at().tp, held.entry->shape);
            }
        }
        if (p.local.empty() && p.whole && files_.tp > 1) return;  // known as a whole only
        if (p.local.empty() && p.whole) p.local.emplace(0, *p.whole);
        if (!p.local.empty()) return;
        // One dimension, whole on one rank: nothing else says so, but nothing speaks against it.
        for (const State& state : p.states) {
            if (state.isWeight() || state.isCounter()) continue;
            if (files_.sharding == 1 && !state.held.empty() && !state.held[0].sliced) {
                for (const StoredShard& held : state.held)
                    p.local.emplace(held.at().tp, held.entry->shape);
                return;
            }
        }
    }

    Status concludeAxes() {
        for (const TpRule& rule : stated_.tpRules) {
            if (std::ranges::none_of(parameters_,
                                     [&](const Parameter& p) { return rule.pattern.matches(p.name); }))
                assembly_.note(rule::metaInconsistent, Severity::warning,
                               fmt::format("{} '{}' matches no tensor", commandOption("tp-dim"), rule.text));
        }
        SHARDSCOPE_ASSIGN(axes_,
                          concludeParameterAxes(source_, files_, parameters_, disagreeing_, stated_.tpRules));
        return {};
    }

    // ------------------------------------------------------------------ tensors

    // Which states parameters have: where a rank's file is missing, those that it should have held.
    void findStateKinds() {
        for (const Parameter& p : parameters_) {
            for (const State& state : p.states) {
                if (const auto dtype = state.stored(); dtype && !state.isWeight())
                    kinds_.try_emplace(state.name, Kind{*dtype, state.isCounter()});
            }
        }
    }

    const RankFile* lostFile(bool optimizer, const RankPlace& at) const {
        for (const RankFile* f : lost_) {
            if (f->name.optimizer == optimizer && f->at().sameGroup(at)) return f;
        }
        return nullptr;
    }
    // Whether a file of the first tensor-parallel rank that may have held something of the parameter is lost.
    bool mayBeLost(const Parameter& p, bool optimizer) const {
        return std::ranges::any_of(p.stages, [&](const auto& stage) {
            return lostFile(optimizer, {.pp = stage.first.first, .moe = stage.first.second}) != nullptr;
        });
    }

    Status addParameter(size_t index) {
        Parameter& p = parameters_[index];
        if (p.local.empty() && !p.whole) {
            assembly_.wrong(
                "nothing says what shape it has: its weight is not stored, and its optimizer state is "
                "flattened",
                "model_meta.json", p.name, Note::Lacks::anything);
            return {};
        }
        Layout layout;
        layout.tp = files_.tp;
        layout.axis = axes_.axis[index];
        layout.local = p.local.empty() ? *p.whole : p.local.begin()->second;
        if (disagreeing_.contains(p.name)) layout.axis = unevenAxis(p);
        layout.locals = &p.local;
        SHARDSCOPE_TRY(layout.finish(p.name));
        layout.itemSize = p.dtype ? dtypeBytes(*p.dtype) : 1;
        layout.sharding = files_.sharding;
        if (layout.axis >= 0 && files_.tp > 1) noteFused(p, index, layout);

        addLostStates(p);
        SHARDSCOPE_TRY(addWeight(p, layout));
        for (const State& state : p.states) {
            if (!state.isWeight()) SHARDSCOPE_TRY(addState(p, state, layout));
        }
        return {};
    }

    // Where ranks disagree in one dimension the pieces are laid one after the other; that it is wrong has
    // been noted.
    static int unevenAxis(const Parameter& p) {
        const Dims& first = p.local.begin()->second;
        int axis = TpAnswer::kReplicated;
        for (const auto& [tp, shape] : p.local) {
            if (shape.size() != first.size()) return TpAnswer::kReplicated;
            for (size_t d = 0; d < shape.size(); ++d) {
                if (shape[d] != first[d]) axis = static_cast<int>(d);
            }
        }
        return axis;
    }

    void noteFused(const Parameter& p, size_t index, Layout& layout) {
        const FamilyRule* rule = axes_.rules[index];
        const auto axis = static_cast<size_t>(layout.axis);
        int parts = rule ? rule->parts : 1;
        if (fused_.names(p.name) && parts == 1) parts = p.name.find("qkv") != std::string::npos ? 3 : 2;
        if (parts > 1 && axis + 1 == layout.local.size() && layout.local[axis] % parts == 0) {
            if (fused_.isAutomatic() || fused_.names(p.name)) {
                layout.fusedParts = parts;
                return;
            }
            const std::string why = fmt::format(
                "by its name it holds {} projections, of which each rank has its part one behind the other "
                "({}). Laid one after the other along dim {} the ranks' shards give {} ({} reads it so)",
                parts, parts == 2 ? "[gate_r | up_r]" : "[q_r | k_r | v_r]", axis,
                parts == 2 ? "[gate_0 up_0 gate_1 up_1 ...]" : "[q_0 k_0 v_0 q_1 k_1 v_1 ...]",
                commandOption("variant", "'fused-qkv=auto'"));
            assembly_.note(rule::layoutFused, Severity::error, why, {}, p.name);
            // Its states are placed the same way; what refuses one refuses the others.
            for (const State& state : p.states) {
                if (!state.isWeight() && !state.isCounter())
                    assembly_.note(rule::layoutFused, Severity::error, why, {}, p.nameOf(state));
            }
        } else if (rule && rule->heads) {
            assembly_.note(
                rule::layoutFused, Severity::info,
                "q, k and v alternate head by head in it, as the framework computes with them; it is "
                "carried so",
                {}, p.name);
        }
    }

    // A parameter none of whose states is here, where a file that may have held them is not.
    void addLostStates(Parameter& p) {
        if (p.hasStates() || !p.tiedTo.empty() || !mayBeLost(p, true)) return;
        for (const auto& [name, kind] : kinds_) {
            if (name == "master_weight" && p.dtype == DType::float32) continue;
            p.states.push_back({name, {}});
        }
    }

    Status addWeight(Parameter& p, const Layout& layout) {
        const State* stored = p.find("");
        const State* master = p.find("master_weight");
        if (!p.tiedTo.empty() && !stored) {
            // Its states stand under the other name.
            assembly_.addAlias({keyPart(p.name)}, {keyPart(p.tiedTo)});
            return {};
        }
        const bool hasStored = stored && !stored->held.empty();
        const bool hasMaster = master != nullptr;
        bool fromMaster = false;
        switch (stated_.masterWeights) {
            case MasterWeights::use:
                fromMaster = hasMaster;
                break;
            case MasterWeights::whereNeeded:
                fromMaster = !hasStored && hasMaster;
                break;
            case MasterWeights::ignore:
                if (!hasStored && hasMaster) {
                    ++ignored_;
                    return {};
                }
                break;
        }
        if (!fromMaster && !hasStored && !weightLost(p)) {
            if (!p.states.empty()) {
                assembly_.wrong("its weight is not stored, and there is no master weight to take it from", {},
                                p.name, Note::Lacks::anything);
            }
            return {};
        }
        if (!p.dtype) {
            assembly_.wrong("nothing says what dtype it has: its weight is only stored as its fp32 master",
                            "model_meta.json", p.name, Note::Lacks::anything);
            return {};
        }
        if (fromMaster) ++fromMasters_;
        const State none;
        const State* from = fromMaster ? master : stored ? stored : &none;
        SHARDSCOPE_ASSIGN(const auto planned, draftsOf(p, *from, layout, !fromMaster));
        addTensor({{keyPart(p.name)}, *p.dtype, layout.global, Role::parameter}, planned, layout, fromMaster);
        return {};
    }

    // Whether a file that should hold the weight is not there.
    bool weightLost(const Parameter& p) const {
        return mayBeLost(p, false) ||
               (kinds_.contains("master_weight") && p.dtype != DType::float32 && mayBeLost(p, true));
    }

    Status addState(const Parameter& p, const State& state, const Layout& layout) {
        const std::string name = p.nameOf(state);
        const auto kind = kinds_.find(state.name);
        const DType other = kind == kinds_.end() ? DType::float32 : kind->second.dtype;
        const DType dtype = paddleDType(state.stored().value_or(other));
        const bool scalar = isScalar(state, elementCount(layout.local)) ||
                            (state.held.empty() && kind != kinds_.end() && kind->second.scalar);
        Layout placed = layout;
        if (scalar) {
            placed = Layout();
            placed.tp = files_.tp;
            placed.axis = TpAnswer::kReplicated;
            placed.local = state.held.empty() ? Dims{1} : state.held[0].entry->shape;
            placed.sharding = files_.sharding;
            placed.copies = true;
            SHARDSCOPE_TRY(placed.finish(name));
        }
        SHARDSCOPE_ASSIGN(const auto planned, draftsOf(p, state, placed, false));
        addTensor({{keyPart(name)}, dtype, placed.global, Role::optimizer}, planned, placed);
        return {};
    }

    static bool isScalar(const State& state, int64_t elements) {
        if (state.held.empty()) return false;
        return std::all_of(state.held.begin(), state.held.end(), [&](const StoredShard& held) {
            int64_t count = 0;
            return checkedProduct(held.entry->shape, count) && count == 1 &&
                   (elements != 1 || state.isCounter());
        });
    }

    // The chunks of one tensor: for each tensor-parallel rank and stage that should hold it.
    Result<std::vector<PlannedPiece>> draftsOf(const Parameter& p, const State& state, const Layout& layout,
                                               bool weight) {
        std::vector<PlannedPiece> all;
        std::set<std::pair<uint32_t, uint32_t>> stages;
        for (const auto& [stage, parameter] : p.stages)
            stages.insert(stage);
        const bool whole = weight && files_.wholeWeights;
        for (uint32_t t = 0; t < (whole ? 1 : files_.tp); ++t) {
            std::optional<std::vector<PlannedPiece>> first;
            std::string firstStage;
            for (const auto& [pp, moe] : stages) {
                const RankPlace at{.pp = pp, .tp = t, .moe = moe};
                std::vector<StoredShard> held;
                for (const StoredShard& h : state.held) {
                    if (h.at().sameGroup(at)) held.push_back(h);
                }
                if (held.empty() && whole && first) continue;
                PieceInput input{p, state, layout, at, weight, whole, files_};
                input.lost = lostFile(!weight, at);
                // Tied weights: one stage may have no optimizer state of them.
                if (held.empty() && !input.lost) continue;
                SHARDSCOPE_ASSIGN(std::vector<PlannedPiece> pieces,
                                  layPieces(input, held, assembly_.builder()));
                const std::string group = formatGroupName(t, pp);
                if (!first) {
                    first = pieces;
                    firstStage = group;
                } else if (!sameCut(*first, pieces)) {
                    // The buffers of another stage are cut elsewhere; one copy of the tensor is enough.
                    assembly_.note(
                        rule::replicaDiffers, Severity::info,
                        fmt::format("{} holds it too, flattened and sharded elsewhere; that of {} is taken",
                                    group, firstStage),
                        {}, p.nameOf(state));
                    continue;
                } else {
                    SHARDSCOPE_TRY(compareClaims(p, state, held, t, firstStage, group));
                }
                all.insert(all.end(), std::make_move_iterator(pieces.begin()),
                           std::make_move_iterator(pieces.end()));
            }
            if (!first && !axes_.owned.contains(p.name)) {
                assembly_.wrong(fmt::format("no file of tp {} holds it, those of other ranks do", t), {},
                                p.nameOf(state));
            }
        }
        return all;
    }

    static bool sameCut(const std::vector<PlannedPiece>& a, const std::vector<PlannedPiece>& b) {
        const auto same = [](const TensorAssembly::Piece& x, const TensorAssembly::Piece& y) {
            return x.offsets == y.offsets && x.lengths == y.lengths && x.flat == y.flat;
        };
        return std::ranges::equal(a, b, same, &PlannedPiece::piece, &PlannedPiece::piece);
    }

    // A name on two stages is one weight that they share, and equal, or the claim of two parameters.
    Status compareClaims(const Parameter& p, const State& state, const std::vector<StoredShard>& held,
                         uint32_t t, const std::string& firstStage, const std::string& stage) {
        if (held.empty() || !claims_.insert(p.name).second) return {};
        const auto other = std::find_if(state.held.begin(), state.held.end(), [&](const StoredShard& h) {
            return h.at().tp == t && formatGroupName(t, h.at().pp) == firstStage &&
                   h.at().shard == held[0].at().shard;
        });
        if (other == state.held.end() || other->entry->parts.empty() || held[0].entry->parts.empty())
            return {};
        SHARDSCOPE_ASSIGN(const std::string a, sampleOf(source_, *other));
        SHARDSCOPE_ASSIGN(const std::string b, sampleOf(source_, held[0]));
        if (a == b) {
            shared_.insert(p.name);
            return {};
        }
        const auto named = [&](const StoredShard& h) {
            const auto it = p.stages.find({h.at().pp, h.at().moe});
            return it == p.stages.end() || it->second.empty() ? std::string("a parameter")
                                                              : "'" + it->second + "'";
        };
        assembly_.wrong(fmt::format("two parameters claim this name, and differ: {} of {} and {} of {}",
                                    named(*other), firstStage, named(held[0]), stage),
                        held[0].file->path, p.name, Note::Lacks::anything);
        return {};
    }

    struct Target {
        Path path;
        DType dtype;
        Dims shape;
        Role role;
    };

    // `cast`: what is stored are fp32 masters.
    void addTensor(const Target& target, const std::vector<PlannedPiece>& planned, const Layout& layout,
                   bool cast = false) {
        const auto& [path, dtype, shape, role] = target;
        assembly_.addTensor(path, dtype, shape, role);
        for (const auto& [file, own] : planned) {
            TensorAssembly::Piece piece = own;
            std::vector<CutBox> boxes = layout.boxesOf(piece);
            if (piece.part.file == kNone) {
                piece.part = StoredPart::whole(kNone, file->id);
                assembly_.addBoxes(path, dtype, shape, role, piece, std::move(boxes));
                continue;
            }
            const DType stored = file->content->tensors[piece.part.tensor].parts[0].dtype;
            const bool casts = cast && dtype != stored;
            const bool float8 = dtype == DType::float8E4M3FN || dtype == DType::float8E5M2;
            const bool taken = casts || (float8 && stored == DType::int8);
            if (casts) piece.part.storedAs = stored;
            if (!casts) piece.part.bits = dtype;
            std::optional<int64_t> start;
            if (piece.flat) start = piece.part.firstElement - piece.flat->start;
            assembly_.addBoxes(path, taken ? dtype : paddleDType(stored), shape, role, piece,
                               std::move(boxes), start);
        }
    }

    // ------------------------------------------------------------------ the rest

    void addObjects() {
        const RankFile* from = nullptr;
        std::string text;
        Value value;
        for (const RankFile& file : files_.files) {
            std::vector<const StoredObject*> schedule;
            std::map<std::string, bool> others;
            for (const StoredObject& object : file.content->objects) {
                if (!object.path.empty() && object.path[0].text == "LR_Scheduler") {
                    schedule.push_back(&object);
                } else {
                    addObject(object.name, object.path, file, object.value);
                }
            }
            if (schedule.empty()) continue;
            NestedDict dict;
            for (const StoredObject* leaf : schedule)
                dict.add(leaf->path, 1, leaf->value);
            const Value joined = schedule.size() == 1 && schedule[0]->path.size() == 1
                                     ? schedule[0]->value
                                     : std::move(dict).finish();
            const std::string json = valueToJson(joined);
            if (!from) {
                from = &file;
                text = json;
                value = joined;
            } else if (json != text && !scheduleNoted_) {
                scheduleNoted_ = true;
                assembly_.note(
                    rule::metaInconsistent, Severity::warning,
                    fmt::format(
                        "the state of the learning rate is {} in '{}' and {} here; the first is taken", text,
                        from->path, json),
                    file.path);
            }
        }
        if (from) {
            addObject("LR_Scheduler", {keyPart("LR_Scheduler")}, *from, value);
        } else if (files_.schedule) {
            assembly_.addObject(kNone, {keyPart("LR_Scheduler")}, *files_.schedule, 0);
        }
    }

    void addObject(const std::string& name, const Path& path, const RankFile& file, const Value& value) {
        if (name.empty() || !objects_.insert(name).second) return;
        assembly_.addObject(file.contents, path, value, files_.rankOf(file.at()));
    }

    // Whether the file of the last sharding rank is missing does not show in the names of the others.
    void noteStateless() {
        if (files_.sharding < 2 || files_.degreesStated || kinds_.empty()) return;
        size_t count = 0;
        const Parameter* first = nullptr;
        for (const Parameter& p : parameters_) {
            if (p.hasStates() || !p.tiedTo.empty() || !p.dtype || !dtypeIsFloat(*p.dtype)) continue;
            ++count;
            if (!first) first = &p;
        }
        if (!first) return;
        assembly_.note(rule::rankMissing, Severity::warning,
                       fmt::format("the optimizer state of {} of {} is not here, such as that of '{}': not "
                                   "trained, or the files of sharding ranks from {} on are missing",
                                   countText(count), counted(parameters_.size(), "parameter"), first->name,
                                   files_.sharding),
                       {}, first->name);
    }

    void noteBeside() {
        if (files_.beside.empty()) return;
        assembly_.note(
            rule::fileUnreferenced, Severity::info,
            fmt::format("{} belong to the run and hold no tensors of the model; they are not part of what "
                        "is converted",
                        fmt::join(files_.beside, ", ")));
    }

    void noteMasters() {
        if (fromMasters_ > 0) {
            const bool asked = stated_.masterWeights == MasterWeights::use;
            assembly_.note(
                rule::metaInconsistent, Severity::info,
                fmt::format("the weights of {} are {}their fp32 masters cast to the "
                            "parameter's dtype, to nearest, ties to even{}",
                            counted(fromMasters_, "parameter"), asked ? "" : "not stored; they are ",
                            asked ? fmt::format(" ({})", commandOption("master-weights", "use")) : ""));
        }
        if (ignored_ > 0) {
            assembly_.note(
                rule::metaInconsistent, Severity::info,
                fmt::format("the weights of {} are not stored, and left out ({})",
                            counted(ignored_, "parameter"), commandOption("master-weights", "ignore")));
        }
        if (!shared_.empty()) {
            assembly_.note(
                rule::metaInconsistent, Severity::info,
                fmt::format(
                    "shared by several pipeline stages, and listed once: {}{}", *shared_.begin(),
                    shared_.size() > 1 ? fmt::format(" and {} more", countText(shared_.size() - 1)) : ""),
                {}, *shared_.begin());
        }
    }

    std::string strategy() const {
        std::set<std::string> stated;
        for (const auto& [at, group] : files_.meta.groups)
            stated.insert(group.strategy);
        if (stated.contains("ShardingV2")) return "sharding stage 1 V2";
        if (stated.contains("ShardingV1")) return "sharding stage 1 V1";
        if (files_.sharding < 2) return {};
        return std::ranges::any_of(parameters_, &Parameter::sliced) ? "sharding stage 3"
                                                                    : "sharding stage 1 V1 or stage 2";
    }

    // With masters the files of weights are empty on purpose, and all is in the optimizer's.
    void noteNothing() {
        size_t listed = 0;
        for (const auto& [at, group] : files_.meta.groups)
            listed += group.parameters.size();
        const auto holds = [&](const RankFile& file) {
            return file.contents != kNone && !assembly_.files()[file.contents].tensors.empty();
        };
        if (listed == 0 || std::ranges::any_of(files_.files, holds)) return;
        assembly_.note(rule::fileMissing, Severity::error,
                       "it lists parameters, and no file here holds any: those of the optimizer are missing",
                       "model_meta.json", {}, Note::Lacks::anything);
    }

    Result<std::unique_ptr<Reader>> finish() {
        std::string writer = "PaddleNLP";
        if (const std::string how = strategy(); !how.empty()) writer += ", " + how;
        assembly_.builder().setWriter(writer);
        Mesh mesh;
        if (files_.moe > 1) mesh.axes.push_back({"moe", files_.moe});
        mesh.axes.push_back({"pp", files_.pp});
        mesh.axes.push_back({"sharding", files_.sharding});
        mesh.axes.push_back({"tp", files_.tp});
        mesh.source = Mesh::Source::declared;
        mesh.evidence.push_back(fmt::format(
            "tp={}, pp={}, sharding={}: {}", files_.tp, files_.pp, files_.sharding,
            files_.degreesStated ? "as model_meta.json states" : "as the names of the files count"));
        if (const std::string how = strategy(); !how.empty()) mesh.evidence.push_back("sharding: " + how);
        for (std::string& line : axes_.evidence)
            mesh.evidence.push_back(std::move(line));
        noteNothing();
        const uint32_t ranks = mesh.ranks();
        return assembly_.finish(ranks, std::move(mesh));
    }

    const Source& source_;
    const OpenOptions& options_;
    TensorAssembly assembly_;
    FusedChoice fused_;
    StatedByUser stated_;
    HybridFiles files_;
    std::vector<const RankFile*> lost_;
    std::vector<Parameter> parameters_;
    ParameterAxes axes_;
    std::set<std::string> disagreeing_, claims_, shared_, objects_;
    struct Kind {
        DType dtype = DType::float32;
        bool scalar = false;
    };
    std::map<std::string, Kind> kinds_;
    size_t fromMasters_ = 0, ignored_ = 0;
    bool scheduleNoted_ = false;
};

}  // namespace

Result<std::unique_ptr<Reader>> openHybrid(const Source& source, const OpenOptions& options) {
    return HybridOpener(source, options).open();
}

}  // namespace shardscope::paddle_nlp
