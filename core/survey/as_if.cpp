#include "survey/as_if.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"

namespace shardscope {

namespace {

constexpr double kSideBySide = 520, kBelow = 330;  // pixels from which the meshes are drawn, too
constexpr double kMeshesHigh = 230, kFlowHigh = 300, kBetween = 12;

// The kinds of items.
enum : int { kBefore, kAfter, kFile, kRank, kCell };

// Tensors whose shards have several sizes, or are too few for the ranks, and the name of the first.
std::pair<size_t, std::string> unevenTensors(const Catalog& target) {
    std::pair<size_t, std::string> uneven;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        const uint64_t shards = target.endChunk(t) - target.firstChunk(t);
        if (target.aliasOf(t) != kNone || shards < 2) continue;
        const ChunkInfo first = target.chunk(t, target.firstChunk(t));
        if (first.flat) continue;
        bool differ = target.rankCount() % shards != 0;
        for (ChunkId c = target.firstChunk(t) + 1; c < target.endChunk(t) && !differ; ++c)
            differ = !std::ranges::equal(target.chunk(t, c).lengths, first.lengths);
        if (differ && ++uneven.first == 1) uneven.second = target.name(t);
    }
    return uneven;
}

// What an item stands for, as bands of files and of ranks of the target.
struct Meant {
    uint32_t file = 0, files = 0, rank = 0, ranks = 0;
};

}  // namespace

Result<std::shared_ptr<const AsIf>> AsIf::of(const Catalog& source, std::shared_ptr<const Facts> facts,
                                             std::shared_ptr<const Catalog> target, const Flow& flow,
                                             const Plan& plan, const StopToken& stop) {
    const auto factsAfter = computeFacts(*target, stop);
    if (!factsAfter) return makeError(ErrorCode::cancelled, "canceled");
    const std::shared_ptr<AsIf> made(new AsIf(source, flow, target->rankCount()));
    if (facts) made->before_ = MeshPicture::of(std::move(facts));
    made->after_ = MeshPicture::of(factsAfter);
    made->note(*target, plan);
    made->target_ = std::move(target);
    return std::shared_ptr<const AsIf>(made);
}

void AsIf::note(const Catalog& target, const Plan& plan) {
    // Those that are no rule: axes that do nothing, tensors that stay whole.
    for (const PlanLeftOut& entry : plan.placement) {
        if (entry.name.find('=') == std::string::npos)
            notes_.push_back(fmt::format("{}: {}", entry.name, entry.why));
    }
    if (const std::string whole = plan.wholeWarning(); !whole.empty()) notes_.push_back(whole);
    if (const auto [count, first] = unevenTensors(target); count > 0)
        notes_.push_back(fmt::format("{} without an even share for each rank, such as '{}'",
                                     counted(count, "tensor"), first));
    if (!plan.leftOut.empty()) {
        const PlanLeftOut& first = plan.leftOut.front();
        const size_t more = plan.leftOut.size() - 1;
        notes_.push_back(fmt::format("left out: {}: {}{}", first.name, first.why,
                                     more ? fmt::format(" ({} more)", countText(more)) : ""));
    }
    if (!plan.impossible.empty()) {
        const PlanLeftOut& first = plan.impossible.front();
        const size_t more = plan.impossible.size() - 1;
        notes_.push_back(fmt::format("not possible: {}: {}{}", first.name, first.why,
                                     more ? fmt::format(" ({} more)", countText(more)) : ""));
    }
}

std::string AsIf::headline() const {
    std::string text = flow_.headline();
    if (after_ && before_)
        text += fmt::format(" The fullest rank holds {}, now {}.", bytesText(after_->mostBytes()),
                            bytesText(before_->mostBytes()));
    return text;
}

DrawnPicture AsIf::draw(const std::shared_ptr<const AsIf>& what, double width, double height, bool dark) {
    const AsIf& self = *what;
    DrawnPicture picture;
    std::vector<Meant> meant;
    std::string text;
    const auto item = [&](const DrawnRect& rect, std::string words, int kind, const Meant& of) {
        picture.items.push_back({rect, std::move(words), kind});
        meant.push_back(of);
    };
    double top = 0;
    const bool meshes = self.before_ && self.after_ && width >= kSideBySide && height >= kBelow;
    std::vector<std::vector<uint32_t>> ranksOf;  // by item, of those before
    if (meshes) {
        const double half = std::floor((width - kBetween) / 2);
        const double high = std::min(kMeshesHigh, height / 2);
        for (const bool after : {false, true}) {
            const MeshPicture& mesh = after ? *self.after_ : *self.before_;
            const MeshSheet sheet =
                sheetOf(mesh, (after ? "As if on " : "Now on ") + mesh.axesText(), half, high, dark);
            const double left = after ? half + kBetween : 0;
            svg::Part part = sheet.part;
            part.cls += after ? " after" : " before";
            text += svg::placed(part, left, 0);
            top = std::max(top, part.height + kBetween);
            for (const MeshDrawing::Cell& cell : sheet.drawing.cells) {
                const uint32_t rank = cell.ranks.front(), ranks = static_cast<uint32_t>(cell.ranks.size());
                std::string words = ranks == 1 ? mesh.rankText(rank) : "Ranks " + spansText(cell.ranks);
                if (after && ranks == 1 && rank < self.flow_.ranks().size())
                    words += "\n" + self.flow_.rankText(rank);
                const DrawnRect& r = cell.rect;
                item({r.x + left + sheet.x, r.y + sheet.y, r.width, r.height}, std::move(words),
                     after ? kAfter : kBefore, after ? Meant{0, 0, rank, ranks} : Meant());
                ranksOf.push_back(cell.ranks);
            }
        }
        picture.width = width;
    }
    const FlowPicture::Drawing flow =
        self.flow_.draw(width, meshes ? std::min(kFlowHigh, std::max(160.0, height - top)) : height, {});
    text += svg::placed(self.flow_.partOf(flow, dark), 0, top);
    const auto below = [top](DrawnRect r) {
        r.y += top;
        return r;
    };
    const auto fileCount = static_cast<uint32_t>(self.flow_.files().size());
    const auto rankCount = static_cast<uint32_t>(self.flow_.ranks().size());
    for (const auto& [rect, file] : flow.rows)
        item(below(rect), self.flow_.fileText(file), kFile,
             {file, std::min(flow.filesEach, fileCount - file), 0, 0});
    for (const auto& [rect, rank] : flow.columns)
        item(below(rect), self.flow_.rankText(rank), kRank,
             {0, 0, rank, std::min(flow.ranksEach, rankCount - rank)});
    for (const FlowPicture::Cell& cell : flow.cells)
        item(below(cell.rect), self.flow_.cellText(cell), kCell,
             {cell.file, cell.files, cell.rank, cell.ranks});
    picture.width = std::max(picture.width, flow.width);
    picture.height = top + flow.height;
    picture.svg =
        svg::alone({"as-if", self.headline(), text, picture.width, picture.height}, svg::shadesOf(dark));

    picture.linked = [what, meant = std::move(meant), ranksOf = std::move(ranksOf),
                      items = picture.items](size_t index) {
        const std::vector<FlowPicture::Line>& files = what->flow_.files();
        const int kind = items[index].kind;
        const Meant& asked = meant[index];
        const auto wrote = [&](size_t at, uint32_t file) {
            return std::ranges::binary_search(ranksOf[at], files[file].rank);
        };
        // Which files and ranks of the target the item speaks of, by what is read.
        std::vector<bool> file(files.size()), rank(what->flow_.ranks().size());
        for (const Flow::Row& row : what->flow_.rows()) {
            const bool ofFile = kind == kBefore
                                    ? wrote(index, row.file)
                                    : row.file >= asked.file && row.file - asked.file < asked.files;
            const bool ofRank = kind == kAfter && index < ranksOf.size()
                                    ? std::ranges::binary_search(ranksOf[index], row.rank)
                                    : row.rank >= asked.rank && row.rank - asked.rank < asked.ranks;
            const bool counts = kind == kCell                      ? ofFile && ofRank
                                : kind == kBefore || kind == kFile ? ofFile
                                                                   : ofRank;
            if (!counts) continue;
            file[row.file] = true;
            rank[row.rank] = true;
        }
        std::vector<DrawnRect> linked;
        for (size_t i = 0; i < items.size(); ++i) {
            if (i == index || items[i].kind == kCell || items[i].kind == kind) continue;
            bool in = false;
            for (uint32_t f = 0; f < file.size() && !in; ++f)
                in = file[f] && (items[i].kind == kBefore ? wrote(i, f)
                                                          : items[i].kind == kFile && f >= meant[i].file &&
                                                                f - meant[i].file < meant[i].files);
            for (uint32_t r = 0; r < rank.size() && !in; ++r)
                in = rank[r] && (items[i].kind == kAfter ? std::ranges::binary_search(ranksOf[i], r)
                                                         : items[i].kind == kRank && r >= meant[i].rank &&
                                                               r - meant[i].rank < meant[i].ranks);
            if (in) linked.push_back(items[i].rect);
        }
        return linked;
    };
    return picture;
}

OtherMesh otherMeshOf(const Checkpoint& source) {
    const FormatInfo& own = source.format->info();
    const bool keeps = own.writes && own.shards && !writesModelsAlone(own);
    // Where the framework's ranks say it, that is where the chunks go.
    const bool says = keeps && (source.format->placing || own.replicas);
    return {keeps ? "" : "dcp", !says && meshOf(source.catalog()).has_value()};
}

Result<std::shared_ptr<const AsIf>> asIfOn(const Checkpoint& source, std::shared_ptr<const Facts> facts,
                                           const std::string& mesh, const StopToken& stop) {
    SHARDSCOPE_ASSIGN(const Mesh to, parseMesh(mesh));
    const OtherMesh how = otherMeshOf(source);
    ConversionRequest request;
    request.source = source.path;
    request.mesh = formatMesh(to);
    request.format = how.format;
    request.skipDamaged = true;  // the rest can be looked at
    if (how.likeSource && to.ranks() > 1) request.like = kLikeSource;
    SHARDSCOPE_ASSIGN(PreparedConversion prepared,
                      prepareConversion(source, source.path + "-as-if", request, stop));
    SHARDSCOPE_ASSIGN(const Flow flow, flowOf(prepared.source.catalog(), *prepared.spec, stop));
    const std::shared_ptr<const TargetSpec> spec = std::move(prepared.spec);
    return AsIf::of(prepared.source.catalog(), std::move(facts), {spec, &spec->target}, flow, prepared.plan,
                    stop);
}

}  // namespace shardscope
