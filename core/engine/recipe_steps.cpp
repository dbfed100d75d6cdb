#include "engine/recipe_steps.h"

#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Kind = RecipeStep::Kind;

constexpr Kind kKinds[] = {Kind::rename,      Kind::copy,    Kind::transpose, Kind::reshape, Kind::split,
                           Kind::concatenate, Kind::unstack, Kind::stack,     Kind::select,  Kind::slice,
                           Kind::pad,         Kind::rope,    Kind::fusedQkv,  Kind::compute};
constexpr size_t kMostNames = 1024;

// One step: fields are taken out of it, and what is left over is an error.
class StepParser {
  public:
    StepParser(const PlacedStep& step, RecipeParameters& parameters)
        : step_(step.step), parameters_(parameters) {
        out_.number = step.number;
        out_.recipe = step.recipe;
        out_.arranges = step.arranges;
    }

    // Nothing when the step's `when` is 0.
    Result<std::optional<RecipeStep>> parse() {
        if (!step_.is_object()) return wrong("it is not an object");
        SHARDSCOPE_ASSIGN(const std::string kind, text("step"));
        bool known = false;
        for (const Kind k : kKinds) {
            if (stepName(k) != kind) continue;
            out_.kind = k;
            known = true;
        }
        if (!known) {
            return wrong(fmt::format(
                "'{}' is not a kind of step (rename, copy, transpose, reshape, split, concatenate, "
                "unstack, stack, select, slice, pad, rope, fused-qkv, compute, include)",
                kind));
        }
        kind_ = kind;
        std::optional<StepNumber> when;
        SHARDSCOPE_TRY(number("when", when));
        if (when && !when->missing.empty()) return wrong(fmt::format("'when': {}", when->missing));
        if (has("description")) {
            SHARDSCOPE_ASSIGN(const std::string unused, text("description"));
        }
        SHARDSCOPE_TRY(flag("optional", out_.optional));
        SHARDSCOPE_TRY(flag("arranges", out_.arranges));
        if (out_.kind != Kind::rename) SHARDSCOPE_TRY(flag("with_state", out_.withState));
        SHARDSCOPE_TRY(fields());
        for (const auto& [key, value] : step_.items()) {
            if (!taken_.contains(key)) return wrong(fmt::format("it has no field '{}'", key));
        }
        if (when && when->value == 0) return std::optional<RecipeStep>();
        return std::optional(std::move(out_));
    }

  private:
    Error wrong(const std::string& message) const {
        if (!kind_.empty())
            return makeError(ErrorCode::usage, fmt::format("{}: {}", stepTitle(out_), message));
        return makeError(ErrorCode::usage,
                         fmt::format("step {}{}: {}", out_.number,
                                     out_.recipe.empty() ? "" : " of " + out_.recipe, message));
    }

    bool has(const char* key) const { return step_.contains(key); }

    Result<std::string> text(const char* key) {
        taken_.insert(key);
        if (!has(key) || !step_[key].is_string())
            return wrong(fmt::format("'{}' is missing or not text", key));
        return step_[key].get<std::string>();
    }

    Status texts(const char* key, std::vector<std::string>& out) {
        taken_.insert(key);
        bool fits =
            has(key) && step_[key].is_array() && !step_[key].empty() && step_[key].size() <= kMostNames;
        for (size_t i = 0; fits && i < step_[key].size(); ++i) {
            fits = step_[key][i].is_string();
            if (fits) out.push_back(step_[key][i].get<std::string>());
        }
        if (!fits) return wrong(fmt::format("'{}' is missing or not a list of texts", key));
        return {};
    }

    Status flag(const char* key, bool& out) {
        if (!has(key)) return {};
        taken_.insert(key);
        if (!step_[key].is_boolean()) return wrong(fmt::format("'{}' is neither true nor false", key));
        out = step_[key].get<bool>();
        return {};
    }

    Status integer(const char* key, int& out) {
        if (!has(key)) return {};
        taken_.insert(key);
        if (!step_[key].is_number_integer() || step_[key].get<int64_t>() < -kMaxRank ||
            step_[key].get<int64_t>() > kMaxRank)
            return wrong(fmt::format("'{}' is not a dimension", key));
        out = step_[key].get<int>();
        return {};
    }

    Result<StepNumber> number(const char* key, const Json& value) {
        auto parsed = parameters_.number(value);
        if (!parsed.ok()) return wrong(fmt::format("'{}': {}", key, parsed.error().message));
        return parsed;
    }

    Status number(const char* key, std::optional<StepNumber>& out) {
        if (!has(key)) return {};
        taken_.insert(key);
        SHARDSCOPE_ASSIGN(out, number(key, step_[key]));
        return {};
    }

    // A list of numbers, or one.
    Status numbers(const char* key, std::vector<StepNumber>& out) {
        if (!has(key)) return {};
        taken_.insert(key);
        const Json& value = step_[key];
        const Json list = value.is_array() ? value : Json::array({value});
        if (list.empty() || list.size() > kMostNames)
            return wrong(fmt::format("'{}' is not a list of numbers", key));
        for (const Json& item : list) {
            SHARDSCOPE_ASSIGN(StepNumber parsed, number(key, item));
            out.push_back(std::move(parsed));
        }
        return {};
    }

    Status inPlace() {
        SHARDSCOPE_ASSIGN(std::string pattern, text("tensors"));
        out_.from = {std::move(pattern)};
        if (has("to")) {
            SHARDSCOPE_ASSIGN(std::string name, text("to"));
            out_.to = {std::move(name)};
        }
        return {};
    }

    Status renamed() {
        SHARDSCOPE_ASSIGN(std::string from, text("from"));
        SHARDSCOPE_ASSIGN(std::string to, text("to"));
        out_.from = {std::move(from)};
        out_.to = {std::move(to)};
        return {};
    }

    Status beside() {
        SHARDSCOPE_ASSIGN(out_.beside, text("beside"));
        return {};
    }

    Status apart() {
        SHARDSCOPE_ASSIGN(std::string pattern, text("from"));
        out_.from = {std::move(pattern)};
        return texts("into", out_.to);
    }

    Status together() {
        SHARDSCOPE_TRY(texts("from", out_.from));
        SHARDSCOPE_ASSIGN(std::string name, text("to"));
        out_.to = {std::move(name)};
        return {};
    }

    Status fields() {
        switch (out_.kind) {
            case Kind::rename:
                SHARDSCOPE_TRY(renamed());
                return has("beside") ? beside() : Status();
            case Kind::copy:
                SHARDSCOPE_TRY(renamed());
                return beside();
            case Kind::transpose:
                SHARDSCOPE_TRY(inPlace());
                return order();
            case Kind::reshape:
                SHARDSCOPE_TRY(inPlace());
                if (!has("shape") || !step_["shape"].is_array())
                    return wrong("'shape' is missing or not a list");
                return numbers("shape", out_.sizes);
            case Kind::split:
                SHARDSCOPE_TRY(apart());
                SHARDSCOPE_TRY(integer("dim", out_.dim));
                SHARDSCOPE_TRY(numbers("sizes", out_.sizes));
                if (!out_.sizes.empty() && out_.sizes.size() != out_.to.size())
                    return wrong("'sizes' and 'into' are not of one length");
                return {};
            case Kind::concatenate:
                SHARDSCOPE_TRY(together());
                return integer("dim", out_.dim);
            case Kind::unstack:
                return unstack();
            case Kind::stack:
                return stack();
            case Kind::select:
                SHARDSCOPE_TRY(inPlace());
                SHARDSCOPE_TRY(integer("dim", out_.dim));
                SHARDSCOPE_TRY(number("index", out_.index));
                return out_.index ? Status() : Status(wrong("it needs 'index'"));
            case Kind::slice:
                SHARDSCOPE_TRY(number("start", out_.start));
                return sized();
            case Kind::pad:
                SHARDSCOPE_TRY(number("row", out_.row));
                SHARDSCOPE_TRY(fill());
                return sized();
            case Kind::rope:
                return rope();
            case Kind::fusedQkv:
                return fusedQkv();
            case Kind::compute:
                return compute();
        }
        return {};
    }

    Status unstack() {
        SHARDSCOPE_ASSIGN(std::string from, text("from"));
        SHARDSCOPE_ASSIGN(std::string to, text("to"));
        if (to.find("{i}") == std::string::npos) return wrong("'to' has no {i}, the place of the index");
        out_.from = {std::move(from)};
        out_.to = {std::move(to)};
        SHARDSCOPE_TRY(integer("dim", out_.dim));
        SHARDSCOPE_TRY(number("stride", out_.stride));
        return number("start", out_.start);
    }

    Status stack() {
        SHARDSCOPE_ASSIGN(std::string from, text("from"));
        SHARDSCOPE_ASSIGN(std::string to, text("to"));
        out_.from = {std::move(from)};
        out_.to = {std::move(to)};
        int group = 0;
        SHARDSCOPE_TRY(integer("index", group));
        if (group < 1) return wrong("it needs 'index', the number of the group of 'from' that is the index");
        out_.indexGroup = static_cast<size_t>(group);
        SHARDSCOPE_TRY(integer("dim", out_.dim));
        SHARDSCOPE_TRY(number("start", out_.start));
        SHARDSCOPE_TRY(number("stride", out_.stride));
        return number("count", out_.length);
    }

    // What slice and pad have in common.
    Status sized() {
        SHARDSCOPE_TRY(inPlace());
        SHARDSCOPE_TRY(integer("dim", out_.dim));
        SHARDSCOPE_TRY(number("length", out_.length));
        if (!out_.length) return wrong("it needs 'length'");
        return flag("if_known", out_.ifKnown);
    }

    Status fill() {
        if (!has("fill")) return {};
        taken_.insert("fill");
        if (!step_["fill"].is_number()) return wrong("'fill' is not a number");
        if (out_.row) return wrong("it has both 'fill' and 'row'");
        out_.fill = step_["fill"].get<double>();
        return {};
    }

    Status order() {
        if (!has("dims")) return {};
        taken_.insert("dims");
        const Json& dims = step_["dims"];
        bool fits = dims.is_array() && dims.size() <= kMaxRank;
        for (size_t i = 0; fits && i < dims.size(); ++i) {
            fits = dims[i].is_number_integer() && dims[i].get<int64_t>() >= 0 &&
                   dims[i].get<int64_t>() < kMaxRank;
            if (fits) out_.order.push_back(dims[i].get<int>());
        }
        if (!fits) return wrong("'dims' is not a list of dimensions");
        return {};
    }

    Status rope() {
        SHARDSCOPE_TRY(inPlace());
        SHARDSCOPE_TRY(integer("dim", out_.dim));
        SHARDSCOPE_TRY(number("heads", out_.heads));
        SHARDSCOPE_TRY(number("head_dim", out_.headDim));
        if (out_.heads.has_value() == out_.headDim.has_value())
            return wrong("it needs either 'heads' or 'head_dim'");
        SHARDSCOPE_ASSIGN(const std::string result, text("layout"));
        if (result != "half" && result != "interleaved")
            return wrong("'layout' (what it is to be) is neither \"half\" nor \"interleaved\"");
        out_.toHalf = result == "half";
        return {};
    }

    Status fusedQkv() {
        SHARDSCOPE_ASSIGN(const std::string layout, text("layout"));
        SHARDSCOPE_TRY(integer("dim", out_.dim));
        if (layout == "ranks") {
            out_.layout = RecipeStep::Layout::ranks;
            SHARDSCOPE_TRY(inPlace());
            SHARDSCOPE_TRY(number("ranks", out_.ranks));
            SHARDSCOPE_TRY(numbers("parts", out_.sizes));
            if (!out_.ranks || out_.sizes.empty()) return wrong("it needs 'ranks' and 'parts'");
            return {};
        }
        if (layout != "grouped" && layout != "blocks")
            return wrong("'layout' is neither \"grouped\", \"blocks\" nor \"ranks\"");
        out_.layout = layout == "grouped" ? RecipeStep::Layout::grouped : RecipeStep::Layout::blocks;
        SHARDSCOPE_TRY(number("heads", out_.heads));
        SHARDSCOPE_TRY(number("kv_heads", out_.kvHeads));
        if (!out_.heads) return wrong("it needs 'heads'");
        SHARDSCOPE_TRY(has("into") ? apart() : together());
        if (out_.from.size() != 3 && out_.to.size() != 3)
            return wrong("it needs three names, of q, k and v, in 'from' or 'into'");
        return {};
    }

    Status compute() {
        SHARDSCOPE_TRY(inPlace());
        using Change = ValueChange::Kind;
        for (const auto& [key, change] :
             {std::pair("multiply", Change::multiply), std::pair("divide", Change::divide),
              std::pair("add", Change::add)}) {
            if (!has(key)) continue;
            if (out_.operand) return wrong("it has more than one of 'multiply', 'divide' and 'add'");
            out_.change = change;
            SHARDSCOPE_TRY(number(key, out_.operand));
        }
        if (!out_.operand) return wrong("it needs 'multiply', 'divide' or 'add'");
        SHARDSCOPE_TRY(flag("root", out_.root));
        SHARDSCOPE_TRY(flag("inverse", out_.inverse));
        if (!has("rounded")) return {};
        SHARDSCOPE_ASSIGN(const std::string rounded, text("rounded"));
        if (rounded != "bfloat16") return wrong("'rounded' is not \"bfloat16\"");
        out_.rounded = DType::bfloat16;
        return {};
    }

    const Json& step_;
    RecipeParameters& parameters_;
    RecipeStep out_;
    std::string kind_;
    std::set<std::string> taken_;
};

}  // namespace

Result<std::vector<RecipeStep>> parseSteps(const std::vector<PlacedStep>& steps,
                                           RecipeParameters& parameters) {
    std::vector<RecipeStep> out;
    for (const PlacedStep& step : steps) {
        SHARDSCOPE_ASSIGN(std::optional<RecipeStep> parsed, StepParser(step, parameters).parse());
        if (parsed) out.push_back(*std::move(parsed));
    }
    return out;
}

}  // namespace shardscope
