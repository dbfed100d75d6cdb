// The numbers of a recipe: heads, sizes, ranks. Private to this room.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/model_config.h"
#include "engine/recipe.h"
#include "plan/steps.h"

namespace shardscope {

class RecipeParameters {
  public:
    // The `parameters` of a recipe. `source` must outlive this. Errors: usage.
    static Result<RecipeParameters> make(const nlohmann::json& declared, const std::vector<std::string>& set,
                                         const RecipeSource& source);

    // An integer, or text: integers and names of parameters with + - * / % and parentheses; a division must
    // come out even. Errors: usage (malformed, a name that is not declared); a name without a value is not an
    // error yet.
    Result<StepNumber> number(const nlohmann::json& value);

    // The parameters that were asked for and have a value, and where it is from.
    const std::map<std::string, std::string>& used() const { return used_; }

  private:
    struct Parameter {
        std::optional<int64_t> set;
        std::vector<std::string> config, args;
        std::string tensors;  // expression; the size of dimension `dim` of the first tensor that it matches
        int dim = 0;
        nlohmann::json standard;  // number or text; null = none
    };
    class Expression;
    Result<StepNumber> evaluate(const std::string& text, int depth);
    Result<StepNumber> valueOf(const std::string& name, int depth);
    std::optional<int64_t> inConfig(const std::string& key);
    std::optional<int64_t> inArgs(const std::string& key);
    Result<std::optional<int64_t>> sizeOf(const Parameter& parameter) const;

    const RecipeSource* source_ = nullptr;
    std::map<std::string, Parameter> parameters_;
    std::optional<nlohmann::json> args_;  // Megatron's arguments, read on first use
    std::map<std::string, std::string> used_;
};

}  // namespace shardscope
