#include "survey/facts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/rule.h"
#include "base/units.h"
#include "engine/engine.h"
#include "model/coverage.h"
#include "model/infer_mesh.h"
#include "survey/hues.h"
#include "survey/layer_name.h"
#include "survey/matrix_parts.h"

namespace shardscope {

namespace {

constexpr size_t kMaxGapBoxes = 10'000;
constexpr int64_t kMostExperts = 4096;  // of a layer; names may say any number

void raise(Health& health, Health to) {
    health = std::max(health, to);
}

bool endsEarly(const Catalog& catalog, const ChunkInfo& chunk) {
    if (chunk.file == kNone) return false;
    const FileInfo& file = catalog.files()[chunk.file];
    return file.state == FileInfo::State::present &&
           (chunk.length > file.size || chunk.offset > file.size - chunk.length);
}

// Chunks whose bytes are not there, going by sizes alone.
Health storedHealth(const Catalog& catalog, const ChunkInfo& chunk) {
    if (chunk.file == kNone) return Health::ok;
    const FileInfo& file = catalog.files()[chunk.file];
    return file.state != FileInfo::State::present || endsEarly(catalog, chunk) ? Health::missing : Health::ok;
}

void findHealth(const Catalog& catalog, const StopToken& stop, Facts& facts) {
    facts.chunkHealth.assign(catalog.chunkCount(), Health::ok);
    facts.tensorHealth.assign(catalog.tensorCount(), Health::ok);
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (t % 256 == 0 && stop.stopRequested()) return;
        Health& health = facts.tensorHealth[t];
        const CoverageResult coverage = checkCoverage(catalog, t, 100'000, kMaxGapBoxes);
        for (const auto& [a, b] : coverage.overlaps) {
            facts.chunkHealth[a] = facts.chunkHealth[b] = Health::overlap;
            raise(health, Health::overlap);
        }
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            Health stored = storedHealth(catalog, chunk);
            if (!boxInside(chunk.offsets, chunk.lengths, catalog.shape(t))) raise(stored, Health::overlap);
            raise(facts.chunkHealth[c], stored);
            raise(health, facts.chunkHealth[c]);
        }
        if (coverage.gapElements > 0) {
            raise(health, Health::gap);
            if (facts.gaps.empty()) facts.gaps.resize(catalog.tensorCount());
            facts.gaps[t] = coverage.gaps;
        }
        facts.damagedTensors += health > Health::nonFinite;
    }
}

void addUpRanks(const Catalog& catalog, const StopToken& stop, Facts& facts) {
    facts.ranks.resize(std::max<uint32_t>(1, catalog.rankCount()));
    std::vector<TensorId> last(facts.ranks.size(), kNone);
    std::vector<bool> otherwise(facts.ranks.size());  // lacks bytes that are not behind an end
    // What each holds, as one number: the sum over its chunks, so that their order does not matter.
    std::vector<uint64_t> held(facts.ranks.size());
    std::vector<std::vector<bool>> experts(facts.ranks.size());
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (t % 1024 == 0 && stop.stopRequested()) return;
        const int64_t expert = splitExpert(catalog.name(t)).number;
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            const uint32_t rank = chunk.rank == kNone ? 0 : chunk.rank;
            if (rank >= facts.ranks.size()) continue;
            RankFacts& r = facts.ranks[rank];
            ++r.chunks;
            r.bytes += elementBytes(catalog, chunk);
            if (last[rank] != t) {
                last[rank] = t;
                ++r.tensors;
                if (expert >= 0 && expert < kMostExperts) {
                    const auto number = static_cast<size_t>(expert);
                    if (experts[rank].size() <= number) experts[rank].resize(number + 1);
                    experts[rank][number] = true;
                }
            }
            held[rank] += mixPlace(mix(0, t), chunk);
            raise(r.health, facts.chunkHealth[c]);
            if (facts.chunkHealth[c] != Health::missing) continue;
            if (!endsEarly(catalog, chunk)) otherwise[rank] = true;
            r.cut = !otherwise[rank];
        }
    }
    std::unordered_map<uint64_t, uint32_t> first;
    std::vector<uint64_t> bytes;
    for (uint32_t rank = 0; rank < facts.ranks.size(); ++rank) {
        RankFacts& r = facts.ranks[rank];
        bytes.push_back(r.bytes);
        std::vector<uint32_t> numbers;
        for (uint32_t e = 0; e < experts[rank].size(); ++e) {
            if (experts[rank][e]) numbers.push_back(e);
        }
        r.experts = spansText(numbers);
        const auto [known, fresh] = first.emplace(held[rank], rank);
        if (!fresh && r.chunks > 0) r.sameAs = known->second;
    }
    const auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2);
    std::nth_element(bytes.begin(), middle, bytes.end());
    facts.medianRankBytes = *middle;
}

void addUpFiles(const Catalog& catalog, const StopToken& stop, Facts& facts) {
    const size_t count = catalog.files().size();
    facts.files.resize(count);
    facts.fileFirst.assign(count + 1, 0);
    std::vector<std::pair<uint64_t, uint64_t>> place(catalog.chunkCount());
    std::vector<FileId> fileOf(catalog.chunkCount(), kNone);
    std::vector<TensorId> last(count, kNone);
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            if (chunk.file == kNone) continue;
            fileOf[c] = chunk.file;
            place[c] = {chunk.offset, chunk.length};
            FileFacts& f = facts.files[chunk.file];
            ++f.chunks;
            f.tensors += last[chunk.file] != t;
            last[chunk.file] = t;
            raise(f.health, facts.chunkHealth[c]);
            ++facts.fileFirst[chunk.file + 1];
        }
    }
    std::partial_sum(facts.fileFirst.begin(), facts.fileFirst.end(), facts.fileFirst.begin());
    facts.fileChunks.resize(facts.fileFirst.back());
    std::vector<uint32_t> next(facts.fileFirst.begin(), facts.fileFirst.end() - 1);
    for (ChunkId c = 0; c < fileOf.size(); ++c) {
        if (fileOf[c] != kNone) facts.fileChunks[next[fileOf[c]]++] = c;
    }
    std::vector<std::vector<std::pair<uint64_t, uint64_t>>> objects(count);
    for (const ObjectInfo& object : catalog.objects()) {
        if (object.file != kNone && object.length)
            objects[object.file].emplace_back(object.offset, object.length);
    }
    for (FileId f = 0; f < count; ++f) {
        if (stop.stopRequested()) return;
        const auto begin = facts.fileChunks.begin() + facts.fileFirst[f];
        const auto end = facts.fileChunks.begin() + facts.fileFirst[f + 1];
        const auto before = [&](ChunkId a, ChunkId b) { return place[a] < place[b]; };
        if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
        std::vector<std::pair<uint64_t, uint64_t>>& spans = objects[f];
        for (auto it = begin; it != end; ++it)
            spans.push_back(place[*it]);
        if (!std::is_sorted(spans.begin(), spans.end())) std::sort(spans.begin(), spans.end());
        FileFacts& facts_ = facts.files[f];
        for (const auto& [offset, length] : spans) {
            const uint64_t stopAt = length > UINT64_MAX - offset ? UINT64_MAX : offset + length;
            if (stopAt > facts_.end) facts_.used += stopAt - std::max(offset, facts_.end);
            facts_.end = std::max(facts_.end, stopAt);
        }
        const FileInfo& info = catalog.files()[f];
        if (info.referenced && info.state != FileInfo::State::present) raise(facts_.health, Health::missing);
        if (info.rank < facts.ranks.size() && info.referenced && !info.metadata) {
            ++facts.ranks[info.rank].files;
            raise(facts.ranks[info.rank].health, facts_.health);
        }
        if (info.metadata) facts_.used = info.size;
    }
}

// Frameworks name the axis of pipeline stages in their own ways.
int stageAxisOf(const Facts& facts, const Catalog& catalog) {
    if (!facts.mesh || facts.mesh->ranks() < catalog.rankCount()) return -1;
    for (size_t i = 0; i < facts.mesh->axes.size(); ++i) {
        if (axisKind(facts.mesh->axes[i].name) == AxisKind::pipeline) return static_cast<int>(i);
    }
    return -1;
}

void findLooseModules(const Catalog& catalog, const StopToken& stop, Facts& facts) {
    if (facts.stageAxis < 0) return;
    std::map<std::string, std::set<uint32_t>> found;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (t % 1024 == 0 && stop.stopRequested()) return;
        std::string_view name = catalog.name(t);
        if (catalog.role(t) == Role::optimizer || splitLayer(name).number >= 0) continue;
        name = name.substr(0, name.rfind('.'));
        std::set<uint32_t>& stages = found[std::string(name.substr(name.rfind('.') + 1))];
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const uint32_t rank = catalog.chunk(t, c).rank;
            if (rank < facts.ranks.size())
                stages.insert(facts.mesh->coordinates(rank)[static_cast<size_t>(facts.stageAxis)]);
        }
    }
    for (const auto& [name, stages] : found)
        facts.looseModules.push_back({name, {stages.begin(), stages.end()}});
}

void findLayers(const Catalog& catalog, const StopToken& stop, Facts& facts) {
    const ModuleTree& tree = facts.tree;
    std::vector<uint32_t> seen(std::max<uint32_t>(1, catalog.rankCount()), kNone);
    for (ModuleTree::Node n = 1; n < tree.size(); ++n) {
        if (n % 4096 == 0 && stop.stopRequested()) return;
        const std::string_view label = tree.label(n);
        const auto number = parseNumber<int64_t>(label);
        if (tree.tensor(n) != kNone || !number) continue;
        if (tree.parent(n) == ModuleTree::kRoot) continue;
        const auto [first, last] = tree.range(n);
        if (catalog.role(tree.order()[first]) == Role::optimizer) continue;
        LayerFacts layer;
        layer.name = tree.fullName(n);
        layer.group = tree.fullName(tree.parent(n));
        layer.number = *number;
        for (uint32_t i = first; facts.stageAxis >= 0 && i < last; ++i) {
            const TensorId t = tree.order()[i];
            for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
                const uint32_t rank = catalog.chunk(t, c).rank;
                if (rank >= seen.size() || seen[rank] == n) continue;
                seen[rank] = n;
                layer.stages.push_back(facts.mesh->coordinates(rank)[static_cast<size_t>(facts.stageAxis)]);
            }
        }
        std::sort(layer.stages.begin(), layer.stages.end());
        layer.stages.erase(std::unique(layer.stages.begin(), layer.stages.end()), layer.stages.end());
        facts.layers.push_back(std::move(layer));
    }
    std::stable_sort(facts.layers.begin(), facts.layers.end(), [](const LayerFacts& a, const LayerFacts& b) {
        return a.group != b.group ? naturalLess(a.group, b.group) : a.number < b.number;
    });
}

}  // namespace

const char* healthName(Health health) {
    constexpr const char* names[] = {"ok", "unread", "nan/inf", "differs", "overlap", "missing", "gap"};
    return names[static_cast<int>(health)];
}

Health Facts::worst() const {
    Health worst = Health::ok;
    for (const Health h : tensorHealth)
        raise(worst, h);
    for (const FileFacts& f : files)
        raise(worst, f.health);
    return worst;
}

std::shared_ptr<const Facts> computeFacts(const Catalog& catalog, const StopToken& stop) {
    auto facts = std::make_shared<Facts>();
    facts->tree = ModuleTree::buildAll(catalog, stop);
    findHealth(catalog, stop, *facts);
    if (stop.stopRequested()) return nullptr;
    facts->mesh = meshOf(catalog);
    addUpRanks(catalog, stop, *facts);
    addUpFiles(catalog, stop, *facts);
    facts->stageAxis = stageAxisOf(*facts, catalog);
    findLayers(catalog, stop, *facts);
    findLooseModules(catalog, stop, *facts);
    if (stop.stopRequested()) return nullptr;
    return facts;
}

std::shared_ptr<const Facts> withFindings(const Facts& facts, const Catalog& catalog,
                                          const ValidationReport& report) {
    auto changed = std::make_shared<Facts>(facts);
    for (const Finding& finding : report.findings) {
        if (finding.severity == Severity::info) continue;
        Health health = Health::ok;
        if (finding.rule == rule::valueNan || finding.rule == rule::valueInf ||
            finding.rule == rule::valueFill)
            health = Health::nonFinite;
        else if (finding.rule == rule::fileMissing || finding.rule == rule::fileTruncated ||
                 finding.rule == rule::integrityCrc || finding.rule == rule::metaInconsistent)
            health = Health::missing;
        else if (finding.rule == rule::coverageGap || finding.rule == rule::coverageShrunk)
            health = Health::gap;
        else if (finding.rule == rule::coverageOverlap || finding.rule == rule::coverageBounds)
            health = Health::overlap;
        else if (finding.rule == rule::replicaDiffers)
            health = Health::differs;
        if (health == Health::ok) continue;
        for (const FindingExample& example : finding.examples) {
            const TensorId t = example.tensor.empty() ? kNone : catalog.find(example.tensor);
            if (t == kNone) continue;
            raise(changed->tensorHealth[t], health);
            for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
                const ChunkInfo chunk = catalog.chunk(t, c);
                const bool meant =
                    (example.rank == kNone || example.rank == chunk.rank) &&
                    (example.file.empty() || chunk.file == kNone ||
                     catalog.files()[chunk.file].path == example.file) &&
                    (!example.box || health == Health::gap ||
                     intersect(example.box->offsets, example.box->lengths, chunk.offsets, chunk.lengths));
                if (!meant || health == Health::gap) continue;
                raise(changed->chunkHealth[c], health);
                if ((health == Health::nonFinite || health == Health::differs) && !example.detail.empty() &&
                    example.rank != kNone) {
                    std::string& note = changed->chunkNotes[c];
                    if (note.find(example.detail) == std::string::npos)
                        note += (note.empty() ? "" : "; ") + example.detail;
                }
                if (chunk.rank < changed->ranks.size()) raise(changed->ranks[chunk.rank].health, health);
                if (chunk.file != kNone) raise(changed->files[chunk.file].health, health);
            }
        }
    }
    changed->damagedTensors =
        static_cast<size_t>(std::count_if(changed->tensorHealth.begin(), changed->tensorHealth.end(),
                                          [](Health h) { return h > Health::nonFinite; }));
    return changed;
}

std::string Facts::noteOf(ChunkId chunk) const {
    const auto note = chunkNotes.find(chunk);
    return note == chunkNotes.end() ? std::string() : note->second;
}

std::string Facts::notesOf(const Catalog& catalog, TensorId tensor) const {
    constexpr int kMostLines = 4;
    std::string text;
    int lines = 0;
    for (auto note = chunkNotes.lower_bound(catalog.firstChunk(tensor));
         note != chunkNotes.end() && note->first < catalog.endChunk(tensor); ++note) {
        if (++lines > kMostLines) return text + "\n…";
        const uint32_t rank = catalog.chunk(tensor, note->first).rank;
        text += (text.empty() ? "" : "\n") +
                (rank == kNone ? std::string() : fmt::format("rank {}: ", rank)) + note->second;
    }
    return text;
}

std::vector<const Note*> notTakenOver(const Catalog& catalog) {
    std::vector<const Note*> notes;
    std::set<std::string_view> names;
    for (const Note& note : catalog.notes()) {
        if (note.severity == Severity::info || note.tensor.empty() || catalog.find(note.tensor) != kNone)
            continue;
        if (names.insert(note.tensor).second) notes.push_back(&note);
    }
    return notes;
}

std::string chunkStateText(const Facts& facts, const Catalog& catalog, ChunkId chunk) {
    const Health health = facts.chunkHealth[chunk];
    return health == Health::missing && endsEarly(catalog, catalog.chunk(chunk)) ? "truncated"
                                                                                 : healthName(health);
}

std::string tensorStateText(const Facts& facts, const Catalog& catalog, TensorId tensor) {
    if (facts.tensorHealth[tensor] != Health::missing) return healthName(facts.tensorHealth[tensor]);
    std::set<std::string> shards, whole, reasons;  // of replicas one is enough
    for (ChunkId c = catalog.firstChunk(tensor); c < catalog.endChunk(tensor); ++c) {
        const std::string shard = chunkText(catalog.chunk(tensor, c));
        shards.insert(shard);
        if (facts.chunkHealth[c] == Health::missing)
            reasons.insert(chunkStateText(facts, catalog, c));
        else
            whole.insert(shard);
    }
    if (whole.empty()) return reasons.size() == 1 ? *reasons.begin() : healthName(Health::missing);
    if (whole.size() == shards.size()) return reasons.empty() ? "missing" : "a replica is incomplete";
    return fmt::format("{} of {}", countText(whole.size()), counted(shards.size(), "shard"));
}

double lostShare(const Facts& facts, const Catalog& catalog, TensorId tensor) {
    if (facts.tensorHealth[tensor] != Health::missing) return 0;
    int64_t all = 0, lost = 0;
    for (ChunkId c = catalog.firstChunk(tensor); c < catalog.endChunk(tensor); ++c) {
        const int64_t elements = catalog.chunk(tensor, c).elements();
        all += elements;
        if (facts.chunkHealth[c] == Health::missing) lost += elements;
    }
    // A finding may speak of the tensor as a whole.
    return lost > 0 ? static_cast<double>(lost) / static_cast<double>(all) : 1;
}

std::string rankStateText(const RankFacts& rank) {
    return rank.health == Health::missing && rank.cut ? "truncated" : healthName(rank.health);
}

std::string rankLabel(const std::optional<Mesh>& mesh, uint32_t rank) {
    if (rank == kNone) return "no rank";
    if (!mesh || rank >= mesh->ranks()) return fmt::format("rank {}", rank);
    std::string text;
    const std::vector<uint32_t> at = mesh->coordinates(rank);
    for (size_t i = 0; i < at.size(); ++i)
        text += fmt::format("{}{}{}", text.empty() ? "" : " ", mesh->axes[i].name, at[i]);
    return text.empty() ? fmt::format("rank {}", rank) : text;
}

std::string spansText(const std::vector<uint32_t>& numbers, size_t most) {
    std::string text;
    size_t runs = 0;
    for (size_t i = 0; i < numbers.size();) {
        size_t end = i + 1;
        while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1)
            ++end;
        if (runs++ == most) return text + ", …";
        text +=
            (text.empty() ? "" : ", ") +
            (end - i == 1 ? std::to_string(numbers[i]) : fmt::format("{}–{}", numbers[i], numbers[end - 1]));
        i = end;
    }
    return text;
}

std::string cutText(const Catalog& catalog, TensorId t) {
    const ChunkId first = catalog.firstChunk(t), end = catalog.endChunk(t);
    if (first == end) return "nothing stored";
    const TensorCut cut = tensorCut(catalog, t);
    bool flat = false;
    for (ChunkId c = first; c < end && !flat; ++c)
        flat = catalog.chunk(t, c).flat.has_value();
    std::string text;
    if (flat) {
        text = fmt::format("flat in {}", end - first);
    } else if (!cut.regular) {
        text = fmt::format("irregular, {}", counted(end - first, "chunk"));
    } else {
        for (size_t d = 0; d < cut.parts.size(); ++d) {
            if (cut.parts[d] > 1)
                text +=
                    fmt::format("{}dim {}, {}", text.empty() ? "" : "; ", d, counted(cut.parts[d], "shard"));
        }
        if (text.empty()) text = "whole";
    }
    if (cut.replicas > 1) text += fmt::format(", {}", counted(cut.replicas, "replica"));
    return text;
}

std::string chunkText(const ChunkInfo& chunk) {
    std::string text = formatBox(chunk.offsets, chunk.lengths);
    if (chunk.flat) text += fmt::format(" flat {}..{}", chunk.flat->start, chunk.flat->stop);
    return text;
}

uint64_t elementBytes(const Catalog& catalog, const ChunkInfo& chunk) {
    return (static_cast<uint64_t>(chunk.elements()) * dtypeBits(catalog.dtype(chunk.tensor)) + 7) / 8;
}

}  // namespace shardscope
