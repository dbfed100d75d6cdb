#include "survey/mesh_picture.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"
#include "survey/layer_name.h"

namespace shardscope {

namespace {

constexpr uint64_t kMostDrawnRanks = 1 << 20;  // a declared mesh may claim any number
constexpr double kOutlierShare = 0.05;
constexpr double kOutlierDeviations = 5;
constexpr size_t kNamed = 4;  // in sentences

std::string lastPart(const std::string& name) {
    return name.substr(name.rfind('.') + 1);
}

std::string againstMedian(uint64_t bytes, uint64_t median) {
    if (median == 0 || bytes == median) return {};
    const double off = static_cast<double>(bytes) / static_cast<double>(median) - 1;
    return fmt::format("{:.1f} % {} the median", std::abs(off) * 100, off > 0 ? "above" : "below");
}

// "4–7", "1, 5", "5, 13, …, 1021 (128 ranks)".
std::string groupText(const std::vector<uint32_t>& ranks) {
    constexpr size_t kAll = 6;
    if (ranks.size() <= kAll || ranks[1] == ranks[0] + 1) return spansText(ranks, kAll);
    return fmt::format("{}, {}, …, {} ({})", ranks[0], ranks[1], ranks.back(), counted(ranks.size(), "rank"));
}

// Layers that are part of no other layer: experts and the parts of a sequence have numbers, too.
bool isOuterLayer(const LayerFacts& layer) {
    return splitLayer(layer.group).number < 0;
}

}  // namespace

std::vector<uint32_t> outlyingRanks(const std::vector<uint64_t>& bytes, uint64_t median) {
    if (bytes.size() < 3) return {};
    std::vector<double> off;
    off.reserve(bytes.size());
    for (const uint64_t b : bytes)
        off.push_back(std::abs(static_cast<double>(b) - static_cast<double>(median)));
    std::vector<double> sorted = off;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    const double most = std::max(kOutlierDeviations * *middle, kOutlierShare * static_cast<double>(median));
    std::vector<uint32_t> found;
    for (uint32_t i = 0; i < bytes.size(); ++i) {
        if (off[i] > most || (bytes[i] == 0 && median > 0)) found.push_back(i);
    }
    std::stable_sort(found.begin(), found.end(), [&](uint32_t a, uint32_t b) { return off[a] > off[b]; });
    return found;
}

std::shared_ptr<const MeshPicture> MeshPicture::of(std::shared_ptr<const Facts> facts) {
    std::shared_ptr<MeshPicture> picture(new MeshPicture(std::move(facts)));
    picture->takeAxes();
    if (picture->rankCount_ < 2) return nullptr;
    picture->takeStages();
    return picture;
}

void MeshPicture::takeAxes() {
    const auto count = static_cast<uint32_t>(facts_->ranks.size());
    uint64_t ranks = 1;
    if (facts_->mesh) {
        for (const MeshAxis& axis : facts_->mesh->axes)
            ranks = std::min(kMostDrawnRanks + 1, ranks * axis.size);
    }
    known_ = facts_->mesh && !facts_->mesh->axes.empty() && ranks >= count && ranks <= kMostDrawnRanks;
    if (!known_) {
        rankCount_ = count;
        axes_.push_back({"rank", count, AxisKind::other, Part::across, 1});
        return;
    }
    rankCount_ = static_cast<uint32_t>(ranks);
    uint32_t stride = rankCount_;
    for (const MeshAxis& axis : facts_->mesh->axes) {
        stride /= axis.size;
        axes_.push_back({axis.name, axis.size, axisKind(axis.name), Part::down, stride});
    }
    if (facts_->stageAxis >= 0 && axes_[static_cast<size_t>(facts_->stageAxis)].size > 1) {
        stageAxis_ = facts_->stageAxis;
        axes_[static_cast<size_t>(stageAxis_)].part = Part::box;
    }
    // Across: shards of one tensor side by side, else what varies fastest.
    int across = -1;
    for (size_t i = 0; i < axes_.size(); ++i) {
        if (axes_[i].part == Part::box || axes_[i].size < 2) continue;
        const bool better = across < 0 || axes_[i].kind == AxisKind::tensor ||
                            axes_[static_cast<size_t>(across)].kind != AxisKind::tensor;
        if (better) across = static_cast<int>(i);
    }
    if (across >= 0) axes_[static_cast<size_t>(across)].part = Part::across;
}

void MeshPicture::takeStages() {
    stages_.resize(hasStages() ? axes_[static_cast<size_t>(stageAxis_)].size : 1);
    std::map<std::string, std::vector<std::vector<uint32_t>>> layers;  // by group and stage
    for (const LayerFacts& layer : facts_->layers) {
        if (!isOuterLayer(layer) || layer.number < 0) continue;
        auto& of = layers[layer.group];
        of.resize(stages_.size());
        if (!hasStages()) {
            of[0].push_back(static_cast<uint32_t>(layer.number));
            continue;
        }
        for (const uint32_t stage : layer.stages)
            of[stage].push_back(static_cast<uint32_t>(layer.number));
        if (layer.stages.empty())
            oddLayers_.push_back(layer.name + " is on no stage");
        else if (layer.stages.size() > 1)
            oddLayers_.push_back(fmt::format("{} is in stages {}", layer.name, spansText(layer.stages)));
    }
    for (auto& [group, numbers] : layers) {
        for (size_t s = 0; s < stages_.size(); ++s) {
            if (numbers[s].empty()) continue;
            const std::string spans = spansText(numbers[s]);
            std::string &holds = stages_[s].holds, &brief = stages_[s].layers;
            brief += (brief.empty() ? "" : ", ") + spans;
            holds +=
                (holds.empty() ? "" : ", ") + (layers.size() == 1 ? "layers" : lastPart(group)) + " " + spans;
        }
    }
    for (const LooseModule& module : facts_->looseModules) {
        if (module.stages.size() == stages_.size()) continue;
        for (const uint32_t s : module.stages)
            stages_[s].holds += (stages_[s].holds.empty() ? "" : ", ") + module.name;
    }
    std::vector<uint64_t> bytes;
    for (uint32_t r = 0; r < rankCount_; ++r) {
        const RankFacts& of = rank(r);
        Stage& stage = stages_[hasStages() ? place(r, static_cast<size_t>(stageAxis_)) : 0];
        stage.bytes += of.bytes;
        stage.health = std::max(stage.health, of.health);
        stage.damaged += of.health > Health::unread;
        mostBytes_ = std::max(mostBytes_, of.bytes);
        if (r < facts_->ranks.size()) bytes.push_back(of.bytes);
    }
    outliers_ = outlyingRanks(bytes, facts_->medianRankBytes);
}

const RankFacts& MeshPicture::rank(uint32_t rank) const {
    static const RankFacts nothing;
    return rank < facts_->ranks.size() ? facts_->ranks[rank] : nothing;
}

std::vector<uint32_t> MeshPicture::group(uint32_t rank, size_t axis) const {
    std::vector<uint32_t> ranks;
    const Axis& of = axes_[axis];
    const uint32_t first = rank - place(rank, axis) * of.stride;
    for (uint32_t i = 0; i < of.size; ++i)
        ranks.push_back(first + i * of.stride);
    return ranks;
}

std::string MeshPicture::axesText() const {
    if (!known_) return counted(rankCount_, "rank");
    std::string text;
    for (const Axis& axis : axes_)
        text += fmt::format("{}{} {}", text.empty() ? "" : " × ", axis.name, axis.size);
    return text;
}

std::string MeshPicture::title() const {
    return axesText() + (!known_                                          ? ", no mesh known"
                         : facts_->mesh->source == Mesh::Source::declared ? ", declared"
                                                                          : ", inferred");
}

std::string MeshPicture::stageTitle(uint32_t stage, bool brief) const {
    const std::string& holds = brief ? stages_[stage].layers : stages_[stage].holds;
    if (!hasStages()) return holds;
    return fmt::format("{}{}{}{}", axes_[static_cast<size_t>(stageAxis_)].name, stage,
                       holds.empty() ? "" : ": ", holds);
}

std::string MeshPicture::groupsText(uint32_t rank) const {
    std::string text;
    for (size_t axis = 0; axis < axes_.size() && known_; ++axis) {
        if (axes_[axis].size < 2) continue;
        text += fmt::format("{}{}: {}", text.empty() ? "" : " · ", axes_[axis].name,
                            groupText(group(rank, axis)));
    }
    return text;
}

std::string MeshPicture::rankText(uint32_t r) const {
    const RankFacts& of = rank(r);
    std::string text = fmt::format("Rank {}", r);
    if (known_) text += " (" + rankLabel(facts_->mesh, r) + ")";
    if (of.chunks == 0) {
        text += "\nStores nothing: what it holds is stored for other ranks";
    } else {
        const std::string off = againstMedian(of.bytes, facts_->medianRankBytes);
        text += fmt::format("\n{}{}{}, {}", bytesText(of.bytes), off.empty() ? "" : ", ", off,
                            counted(of.chunks, "chunk"));
    }
    if (of.files) text += fmt::format(", {}", counted(of.files, "file"));
    if (!of.experts.empty()) text += "\nExperts " + of.experts;
    if (of.sameAs != kNone) text += fmt::format("\nA replica of rank {}", of.sameAs);
    if (of.health != Health::ok) text += "\nWorst state: " + rankStateText(of);
    if (const std::string groups = groupsText(r); !groups.empty()) text += "\nGroups: " + groups;
    return text;
}

std::string MeshPicture::text(bool ascii) const {
    constexpr const char *blocks[] = {"▁", "▂", "▄", "▆", "█"}, *plain[] = {"1", "2", "4", "6", "#"};
    constexpr const char* marks[] = {"",  "",  "N", "!",
                                     "2", "/", "X"};  // by state, as window and page have them
    const auto letter = [&](const RankFacts& of) -> std::string {
        if (of.health > Health::unread) return marks[static_cast<int>(of.health)];
        if (of.chunks == 0) return ascii ? "." : "·";
        const double share = mostBytes_ ? static_cast<double>(of.bytes) / static_cast<double>(mostBytes_) : 0;
        const auto step = static_cast<size_t>(std::clamp(std::lround(share * 5) - 1, 0L, 4L));
        return (ascii ? plain : blocks)[step];
    };
    const auto across = std::ranges::find(axes_, Part::across, &Axis::part);
    const uint32_t columns = across == axes_.end() ? 1 : across->size;
    const uint32_t stride = across == axes_.end() ? 1 : across->stride;
    std::string out = title() + "\n";
    for (uint32_t s = 0; s < stages_.size(); ++s) {
        if (const std::string head = stageTitle(s); !head.empty()) out += printable(head) + "\n";
        std::string before, from, to;
        const auto flush = [&] {
            if (!from.empty() || !before.empty())
                out += fmt::format("  {:<16} {}\n", from == to ? from : from + " – " + to, before);
        };
        for (uint32_t r = 0; r < rankCount_; ++r) {
            if (hasStages() && place(r, static_cast<size_t>(stageAxis_)) != s) continue;
            if (across != axes_.end() && r / stride % columns != 0) continue;
            std::string line, label;
            for (uint32_t c = 0; c < columns; ++c)
                line += letter(rank(r + c * stride));
            for (size_t axis = 0; axis < axes_.size(); ++axis) {
                if (axes_[axis].part == Part::down && axes_[axis].size > 1)
                    label +=
                        fmt::format("{}{}{}", label.empty() ? "" : " ", axes_[axis].name, place(r, axis));
            }
            if (line != before) {
                flush();
                from = label;
            }
            before = line;
            to = label;
        }
        flush();
    }
    out += fmt::format("a letter is a rank{}; {} holds {}{}\n",
                       columns > 1 && known_ ? " along " + across->name : "", ascii ? "#" : "█",
                       bytesText(mostBytes_), ascii ? ", . nothing" : ", · nothing");
    if (const std::string more = remarks(); !more.empty()) out += printable(more) + "\n";
    return out;
}

std::string MeshPicture::remarks() const {
    std::vector<std::string> out, bad;
    for (const uint32_t r : outliers_)
        out.push_back(fmt::format("rank {} holds {} ({})", r, bytesText(rank(r).bytes),
                                  againstMedian(rank(r).bytes, facts_->medianRankBytes)));
    for (uint32_t r = 0; r < rankCount_; ++r) {
        if (rank(r).health > Health::unread)
            bad.push_back(fmt::format("rank {} ({})", r, rankStateText(rank(r))));
    }
    std::string text;
    const auto say = [&](const std::string& sentence) { text += (text.empty() ? "" : " ") + sentence + "."; };
    if (!bad.empty()) say("Damaged: " + listed(bad, kNamed));
    if (!out.empty())
        say(fmt::format("{} out of line: {}", counted(out.size(), "rank"), listed(out, kNamed)));
    if (!oddLayers_.empty()) say(listed(oddLayers_, kNamed));
    return text;
}

}  // namespace shardscope
