#include "engine/average.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <numeric>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/units.h"
#include "engine/filled.h"
#include "engine/request.h"
#include "engine/whole_file.h"

namespace shardscope {
namespace {

constexpr size_t kLargestWeightFile = 1 << 20;
constexpr size_t kMostInputs = 1024;

Error wrongWeights(std::string message) {
    return makeError(ErrorCode::usage, std::move(message))
        .withHint(option("weights") +
                  " takes uniform, linear, minus-sqrt, cosine, one number for each checkpoint, or a file of "
                  "numbers");
}

using Decay = double (*)(double);
constexpr std::pair<std::string_view, Decay> kDecays[] = {
    {"linear", [](double x) { return 1 - x; }},
    {"minus-sqrt", [](double x) { return 1 - std::sqrt(x); }},
    {"cosine", [](double x) { return (1 + std::cos(std::numbers::pi * x)) / 2; }}};

std::vector<double> weightsOf(Decay decay, size_t count) {
    std::vector<double> weights(count);
    const auto at = [&](size_t i) { return decay(static_cast<double>(i) / static_cast<double>(count)); };
    for (size_t i = 0; i < count; ++i)
        weights[i] = i + 1 == count ? at(i) : (i == 0 ? 1 : at(i)) - at(i + 1);
    return weights;
}

bool separates(char c) {
    return std::string_view(" \t\r\n,[]").find(c) != std::string_view::npos;
}

// None where the text is something else.
std::vector<double> numbersIn(std::string_view text) {
    std::vector<double> numbers;
    for (size_t at = 0; at < text.size();) {
        if (separates(text[at])) {
            ++at;
            continue;
        }
        double value = 0;
        const char* const end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data() + at, end, value);
        if (error != std::errc() || !std::isfinite(value) || (rest != end && !separates(*rest))) return {};
        numbers.push_back(value);
        at = static_cast<size_t>(rest - text.data());
    }
    return numbers;
}

Result<std::string> weightFile(const std::string& path) {
    auto text = readWholeFile(path, kLargestWeightFile);
    if (!text.ok() && text.error().code == ErrorCode::notFound)
        return std::move(text).error().withHint(option("weights") +
                                                " takes uniform, linear, minus-sqrt, cosine, one number for "
                                                "each checkpoint, or a file of numbers");
    return text;
}

bool isAveraged(DType dtype) {
    return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32 ||
           dtype == DType::float64;
}

// What one input gives, in the order of the wanted tensors.
std::vector<TensorSource> sourcesFor(const Catalog& target, const PreparedInput& input,
                                     const std::string& last, std::vector<PlanLeftOut>& impossible) {
    const TargetSpec& spec = *input.spec;
    std::vector<TensorSource> sources(target.tensorCount());
    std::vector<bool> used(spec.target.tensorCount(), false);
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        const std::string name(target.name(t));
        const TensorId found = spec.target.find(name);
        if (found == kNone) {
            impossible.push_back({name, fmt::format("'{}' does not have it", input.source.path)});
            continue;
        }
        used[found] = true;
        sources[t] = spec.sources[found];
        if (!std::ranges::equal(spec.target.shape(found), target.shape(t)))
            impossible.push_back({name, fmt::format("its shape is {} in '{}' and {} in '{}'",
                                                    formatDims(spec.target.shape(found)), input.source.path,
                                                    formatDims(target.shape(t)), last)});
    }
    for (TensorId t = 0; t < spec.target.tensorCount(); ++t) {
        if (!used[t])
            impossible.push_back({std::string(spec.target.name(t)),
                                  fmt::format("'{}' has it, '{}' does not ({} leaves it out)",
                                              input.source.path, last, option("exclude"))});
    }
    return sources;
}

}  // namespace

Result<std::vector<double>> averageWeights(const std::string& rule, size_t count, bool raw) {
    std::vector<double> weights;
    if (rule.empty() || rule == "uniform") weights.assign(count, 1.0 / static_cast<double>(count));
    for (const auto& [name, decay] : kDecays)
        if (name == rule) weights = weightsOf(decay, count);
    if (weights.empty()) weights = numbersIn(rule);
    if (weights.empty()) {
        SHARDSCOPE_ASSIGN(const std::string text, weightFile(rule));
        weights = numbersIn(text);
        if (weights.empty())
            return wrongWeights("the file of weights holds something else than numbers").inFile(rule);
    }
    if (weights.size() != count)
        return wrongWeights(
            fmt::format("{} for {}", counted(weights.size(), "weight"), counted(count, "checkpoint")));
    if (raw) return weights;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (sum == 0 || !std::isfinite(sum))
        return makeError(
                   ErrorCode::usage,
                   fmt::format("the weights sum up to {}, so they cannot be made to sum up to one", sum))
            .withHint(option("raw-weights") + " takes them as they are");
    for (double& weight : weights)
        weight /= sum;
    return weights;
}

Status prepareAverage(PreparedConversion& p, const ConversionRequest& request, const SpecFor& specFor,
                      const StopToken& stop, std::vector<PlanLeftOut>& impossible) {
    if (request.fillGaps != FillGaps::refuse)
        return makeError(
                   ErrorCode::usage,
                   fmt::format("an average cannot fill gaps: {} is for one checkpoint", option("fill-gaps")))
            .withHint("fill them in a conversion first");
    if (request.average.size() >= kMostInputs)
        return makeError(ErrorCode::usage,
                         fmt::format("at most {} are averaged", counted(kMostInputs, "checkpoint")));
    SHARDSCOPE_ASSIGN(const std::vector<double> weights,
                      averageWeights(request.weights, request.average.size() + 1, request.rawWeights));
    CheckpointOptions options = checkpointOptions(request);
    options.io = request.io;
    options.open.stop = stop;
    options.fileSystem = p.source.fileSystem;
    for (const std::string& path : request.average) {
        PreparedInput input;
        SHARDSCOPE_ASSIGN(input.source, openCheckpoint(path, options));
        SHARDSCOPE_ASSIGN(TargetSpec spec, specFor(input.source));
        input.spec = std::make_unique<TargetSpec>(std::move(spec));
        SHARDSCOPE_ASSIGN(const FilledElements filled, readFilled(input.source));
        if (!filled.tensors.empty())
            impossible.push_back({path,
                                  "elements of it were filled in by an earlier conversion, which the "
                                  "average could not tell any more"});
        p.inputs.push_back(std::move(input));
    }

    const Catalog& target = p.spec->target;
    auto average = std::make_unique<Average>();
    for (const PreparedInput& input : p.inputs)
        average->inputs.push_back(
            {input.source.reader.get(), sourcesFor(target, input, p.source.path, impossible), 1});
    average->inputs.push_back({p.source.reader.get(), p.spec->sources, 1});
    for (size_t i = 0; i < weights.size(); ++i)
        average->inputs[i].weight = weights[i];
    average->accumulate = request.accumulate == Accumulate::fp64 ? DType::float64 : DType::float32;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        const std::string name(target.name(t));
        const DType dtype = p.spec->sources[t].dtypeIn(p.source.catalog(), target.dtype(t));
        const bool mean = target.elements(t) > 1 && dtypeIsFloat(dtype);
        average->rules.push_back(mean ? Average::Rule::mean : request.notAveraged);
        if (!mean)
            p.plan.notAveraged.push_back(
                {name, fmt::format("{}, {}",
                                   target.elements(t) == 0   ? "empty"
                                   : target.elements(t) == 1 ? "one element"
                                                             : dtypeName(dtype),
                                   request.notAveraged == Average::Rule::same ? "must be the same in all"
                                                                              : "from the last checkpoint")});
        for (const AverageInput& input : average->inputs) {
            const DType here = input.sources[t].dtypeIn(input.source->catalog(), dtype);
            if (mean && !isAveraged(here))
                impossible.push_back({name, fmt::format("{} is not averaged: its values mean nothing without "
                                                        "their scales ({} leaves it out)",
                                                        dtypeName(here), option("exclude"))});
            else if (!mean && request.notAveraged == Average::Rule::same && here != dtype)
                impossible.push_back({name, fmt::format("it is {} in one checkpoint and {} in the last",
                                                        dtypeName(here), dtypeName(dtype))});
            else
                continue;
            break;
        }
    }
    for (size_t i = 0; i < weights.size(); ++i)
        p.plan.averaged.push_back(
            {i < p.inputs.size() ? p.inputs[i].source.path : p.source.path, weights[i]});
    p.plan.accumulate = choiceName(request.accumulate);
    p.average = std::move(average);
    return {};
}

}  // namespace shardscope
