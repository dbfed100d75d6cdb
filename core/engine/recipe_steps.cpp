#include "engine/recipe_steps.h"

#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Kind = RecipeStep::Kind;

constexpr Kind kKinds[] = {Kind::rename,      Kind::transpose, Kind::reshape, Kind::split,
                           Kind::concatenate, Kind::rope,      Kind::fusedQkv};
constexpr size_t kMostNames = 1024;

// One step: fields are taken out of it, and what is left over is an error.
class StepParser {
  public:
    StepParser(const Json& step, size_t number, const RecipeParameters& parameters)
        : step_(step), parameters_(parameters) {
        out_.number = number;
    }

    Result<RecipeStep> parse() {
        if (!step_.is_object()) return wrong("it is not an object");
        SHARDSCOPE_ASSIGN(const std::string kind, text("step"));
        bool known = false;
        for (const Kind k : kKinds) {
            if (stepName(k) != kind) continue;
            out_.kind = k;
            known = true;
        }
        if (!known) {
            return wrong(
                fmt::format("'{}' is not a kind of step (rename, transpose, reshape, split, concatenate, "
                            "rope, fused-qkv)",
                            kind));
        }
        kind_ = kind;
        if (has("description")) {
            SHARDSCOPE_ASSIGN(const std::string unused, text("description"));
        }
        SHARDSCOPE_TRY(flag("optional", out_.optional));
        if (out_.kind != Kind::rename) SHARDSCOPE_TRY(flag("with_state", out_.withState));
        SHARDSCOPE_TRY(fields());
        for (const auto& [key, value] : step_.items()) {
            if (!taken_.contains(key)) return wrong(fmt::format("it has no field '{}'", key));
        }
        return out_;
    }

  private:
    Error wrong(const std::string& message) const {
        return makeError(ErrorCode::usage,
                         kind_.empty() ? fmt::format("step {}: {}", out_.number, message)
                                       : fmt::format("step {} ({}): {}", out_.number, kind_, message));
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

    Result<StepNumber> number(const char* key, const Json& value) const {
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
            case Kind::rename: {
                SHARDSCOPE_ASSIGN(std::string from, text("from"));
                SHARDSCOPE_ASSIGN(std::string to, text("to"));
                out_.from = {std::move(from)};
                out_.to = {std::move(to)};
                return {};
            }
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
            case Kind::rope:
                return rope();
            case Kind::fusedQkv:
                return fusedQkv();
        }
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

    const Json& step_;
    const RecipeParameters& parameters_;
    RecipeStep out_;
    std::string kind_;
    std::set<std::string> taken_;
};

}  // namespace

Result<std::vector<RecipeStep>> parseSteps(const Json& steps, const RecipeParameters& parameters) {
    std::vector<RecipeStep> out;
    for (const Json& step : steps) {
        SHARDSCOPE_ASSIGN(RecipeStep parsed, StepParser(step, out.size() + 1, parameters).parse());
        out.push_back(std::move(parsed));
    }
    return out;
}

}  // namespace shardscope
