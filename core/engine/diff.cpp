#include "engine/diff.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/units.h"
#include "engine/mapped.h"
#include "engine/quantized.h"
#include "execute/compare.h"
#include "model/coverage.h"
#include "plan/selection.h"
#include "plan/steps.h"

namespace shardscope {
namespace {

std::string placementText(const Catalog& catalog, TensorId t) {
    const std::vector<ChunkId> chunks = coveringChunks(catalog, t);
    if (chunks.size() == 1) {
        const uint32_t rank = catalog.chunk(t, chunks[0]).rank;
        return rank == kNone ? "one chunk" : fmt::format("one chunk on rank {}", rank);
    }
    Dims parts(catalog.shape(t).size(), 0);
    for (size_t d = 0; d < parts.size(); ++d) {
        std::vector<int64_t> starts;
        for (ChunkId c : chunks)
            starts.push_back(catalog.chunk(t, c).offsets[d]);
        std::sort(starts.begin(), starts.end());
        parts[d] = std::unique(starts.begin(), starts.end()) - starts.begin();
    }
    return fmt::format("{}, sharded {}", counted(chunks.size(), "chunk"), formatDims(parts));
}

bool samePlacement(const Catalog& a, TensorId ta, const Catalog& b, TensorId tb) {
    const auto boxes = [](const Catalog& catalog, TensorId t) {
        std::vector<std::tuple<Dims, Dims, uint32_t>> out;
        for (ChunkId c : coveringChunks(catalog, t)) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            out.emplace_back(Dims(chunk.offsets.begin(), chunk.offsets.end()),
                             Dims(chunk.lengths.begin(), chunk.lengths.end()), chunk.rank);
        }
        std::sort(out.begin(), out.end());
        return out;
    };
    return boxes(a, ta) == boxes(b, tb);
}

// Finds what is compared with what, in metadata alone.
class Matcher {
  public:
    Matcher(const Checkpoint& a, const Checkpoint& b, const DiffOptions& options, const StopToken& stop)
        : a_(a), b_(b), options_(options), stop_(stop) {}

    Status match() {
        SHARDSCOPE_ASSIGN(selection_, TensorSelection::of(options_));
        if (!options_.map.empty()) SHARDSCOPE_TRY(map());
        if (options_.map.empty() && !options_.set.empty())
            return makeError(ErrorCode::usage, fmt::format("{} gives values to a recipe, so it needs {}",
                                                           option("set"), option("map")));
        SHARDSCOPE_TRY(pairUp());
        return checkNotEmpty();
    }

    DiffReport& report() { return report_; }
    const TargetSpec* mapped() const { return mapped_.get(); }
    const Catalog& catalogA() const { return mapped_ ? mapped_->target : a_.catalog(); }
    const std::vector<std::pair<TensorId, TensorId>>& pairs() const { return pairs_; }

  private:
    Result<TargetSpec> resolve(const TensorChoice& choice, std::string* said) const {
        return mappedBy(a_,
                        {options_.map, options_.set, options_.rename, MasterWeights::ignore, choice,
                         b_.catalog().format(), directoryOf(b_)},
                        stop_, said);
    }

    Status map() {
        SHARDSCOPE_ASSIGN(TargetSpec spec, resolve(options_, &report_.recipe));
        std::set<std::string_view> objects;
        for (const ObjectInfo& object : a_.catalog().objects())
            objects.insert(object.name);
        for (const auto* list : {&spec.excluded, &spec.leftOut})
            for (const PlanLeftOut& entry : *list)
                if (!objects.contains(entry.name)) report_.leftOutA.push_back(entry);
        mapped_ = std::make_shared<const TargetSpec>(std::move(spec));
        report_.mapped = {mapped_, &mapped_->target};
        if (options_.select.empty() && options_.exclude.empty()) return {};
        // What B holds of what is left out of A has the names that the recipe gives to that. A recipe that
        // does not fit all of A says nothing of them.
        TensorChoice all = options_;
        all.select.clear();
        all.exclude.clear();
        const auto whole = resolve(all, nullptr);
        if (!whole.ok()) return stop_.poll();
        for (TensorId t = 0; t < whole->target.tensorCount(); ++t)
            if (mapped_->target.find(whole->target.name(t)) == kNone)
                leftOutNames_.emplace(whole->target.name(t));
        return {};
    }

    Status pairUp() {
        const Catalog &ca = catalogA(), &cb = b_.catalog();
        SHARDSCOPE_ASSIGN(const Renamer rename,
                          Renamer::make(mapped_ ? std::vector<RenameRule>() : options_.rename));
        std::vector<bool> matched(cb.tensorCount(), false);
        for (TensorId ta = 0; ta < ca.tensorCount(); ++ta) {
            const std::string name = rename(ca.name(ta));
            const TensorId tb = cb.find(name);
            if (tb != kNone) matched[tb] = true;
            if (std::string why = mapped_ ? std::string() : selection_.whyNot(ca, ta); !why.empty()) {
                if (tb != kNone) report_.leftOutB.push_back({name, why});
                report_.leftOutA.push_back({std::string(ca.name(ta)), std::move(why)});
            } else if (tb == kNone) {
                report_.onlyA.push_back(name);
            } else {
                compareMetadata(name, ta, tb);
            }
        }
        for (TensorId tb = 0; tb < cb.tensorCount(); ++tb) {
            if (matched[tb]) continue;
            const std::string name(cb.name(tb));
            std::string why = selection_.whyNot(cb, tb);
            if (why.empty() && leftOutNames_.contains(name)) why = "left out of A";
            if (why.empty())
                report_.onlyB.push_back(name);
            else
                report_.leftOutB.push_back({name, std::move(why)});
        }
        report_.compared = pairs_.size();
        return {};
    }

    void compareMetadata(const std::string& name, TensorId ta, TensorId tb) {
        const Catalog &ca = catalogA(), &cb = b_.catalog();
        if (!std::ranges::equal(ca.shape(ta), cb.shape(tb))) {
            report_.shape.push_back({name, formatDims(ca.shape(ta)), formatDims(cb.shape(tb))});
            return;
        }
        if (ca.dtype(ta) != cb.dtype(tb)) {
            report_.dtype.push_back(
                {name, std::string(dtypeName(ca.dtype(ta))), std::string(dtypeName(cb.dtype(tb)))});
            return;
        }
        if (!mapped_ && !samePlacement(ca, ta, cb, tb))
            report_.placement.push_back({name, placementText(ca, ta), placementText(cb, tb)});
        pairs_.emplace_back(ta, tb);
    }

    // Nothing compared is nothing proved.
    Status checkNotEmpty() const {
        const bool chosen = !options_.select.empty() || !options_.exclude.empty() || options_.weightsOnly;
        if (!chosen || !pairs_.empty() || !report_.equal()) return {};
        return makeError(ErrorCode::impossible,
                         report_.leftOutA.empty() && report_.leftOutB.empty()
                             ? "there is no tensor to compare"
                             : "no tensor is left to compare: left out are " + report_.leftOutText());
    }

    const Checkpoint &a_, &b_;
    const DiffOptions& options_;
    const StopToken& stop_;
    TensorSelection selection_;
    std::shared_ptr<const TargetSpec> mapped_;
    std::set<std::string, std::less<>> leftOutNames_;
    std::vector<std::pair<TensorId, TensorId>> pairs_;
    DiffReport report_;
};

// Worst first: by how far the difference is from nothing, beside the size of A's values.
bool isWorse(const ValueDiff& x, const ValueDiff& y) {
    const auto measures = [](const ValueDiff& v) {
        const double relative = v.relativeL2();
        return std::tuple(-(std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative),
                          -v.maxAbs);
    };
    return std::tuple(measures(x), std::string_view(x.name)) <
           std::tuple(measures(y), std::string_view(y.name));
}

Status compareValues(const Checkpoint& a, const Checkpoint& b, const Matcher& matcher, DiffReport& report,
                     const Resources& resources) {
    SHARDSCOPE_ASSIGN(const auto figures,
                      compareTensors({a.reader.get(), matcher.mapped()}, {b.reader.get(), nullptr},
                                     matcher.pairs(), resources));
    DiffSummary summary;
    ValueFigures total;
    for (size_t i = 0; i < figures.size(); ++i) {
        total.add(figures[i]);
        if (figures[i].different == 0) continue;
        report.values.push_back({figures[i], std::string(b.catalog().name(matcher.pairs()[i].second))});
    }
    std::ranges::sort(report.values, isWorse);
    summary.different = report.values.size();
    summary.equal = figures.size() - summary.different;
    summary.maxAbs = total.maxAbs;
    summary.maxRelative = total.maxRelative;
    summary.l2 = total.l2();
    summary.relativeL2 = total.relativeL2();
    report.summary = summary;
    return {};
}

}  // namespace

std::string DiffReport::leftOutText() const {
    if (leftOutA.empty() && leftOutB.empty()) return {};
    std::map<std::string, size_t> reasons;
    for (const auto* list : {&leftOutA, &leftOutB})
        for (const PlanLeftOut& entry : *list)
            ++reasons[entry.why];
    std::string why;
    for (const auto& [reason, count] : reasons)
        why += fmt::format("{}{} ({})", why.empty() ? "" : ", ", reason, countText(count));
    return fmt::format("{} of A and {} of B: {}", counted(leftOutA.size(), "tensor"),
                       countText(leftOutB.size()), why);
}

Result<DiffOptions> diffOptions(const ConversionRequest& request) {
    DiffOptions options;
    static_cast<TensorChoice&>(options) = request;
    SHARDSCOPE_ASSIGN(TargetRequest rules, targetRequest(request));
    options.rename = std::move(rules.rename);
    options.map = request.map;
    options.set = request.set;
    if (!request.dequantize.empty()) {
        SHARDSCOPE_ASSIGN(options.dequantize, dequantizedDtype(request.dequantize));
    }
    return options;
}

Result<DiffReport> diffCheckpoints(const Checkpoint& storedA, const Checkpoint& storedB,
                                   const DiffOptions& options, const Resources& resources) {
    Checkpoint a = storedA, b = storedB;
    if (options.dequantize) {
        const auto computed = [&](const Checkpoint& stored) {
            return stored.dequantized ? Result<Checkpoint>(stored)
                                      : dequantized(stored, *options.dequantize, resources.stop);
        };
        auto one = computed(storedA), other = computed(storedB);
        for (const auto* side : {&one, &other})
            if (!side->ok() && side->error().code != ErrorCode::unsupported) return side->error();
        if (!one.ok() && !other.ok()) return std::move(one).error();
        if (one.ok()) a = std::move(one).value();
        if (other.ok()) b = std::move(other).value();
    }
    Matcher matcher(a, b, options, resources.stop);
    SHARDSCOPE_TRY(matcher.match());
    DiffReport& report = matcher.report();
    if (options.values) SHARDSCOPE_TRY(compareValues(a, b, matcher, report, resources));
    return std::move(report);
}

}  // namespace shardscope
