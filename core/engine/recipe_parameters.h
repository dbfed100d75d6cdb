// The numbers of a recipe: heads, sizes, ranks. Private to this room.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "plan/steps.h"

namespace shardscope {

class RecipeParameters {
  public:
    // The `parameters` of a recipe; `beside` is the directory where a config.json may lie. Errors: usage.
    static Result<RecipeParameters> make(const nlohmann::json& declared, const std::vector<std::string>& set,
                                         const std::string& beside);

    // An integer, or text: integers and names of parameters joined by * and /. Errors: usage (malformed, a
    // name that is not declared); a name without a value is not an error yet.
    Result<StepNumber> number(const nlohmann::json& value) const;

  private:
    struct Parameter {
        std::optional<int64_t> set;
        std::vector<std::string> config;
        nlohmann::json standard;  // number or text; null = none
    };
    Result<StepNumber> evaluate(const std::string& text, int depth) const;
    Result<StepNumber> valueOf(const std::string& name, int depth) const;

    std::map<std::string, Parameter> parameters_;
    nlohmann::json config_;
};

}  // namespace shardscope
