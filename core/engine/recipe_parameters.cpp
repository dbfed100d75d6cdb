#include "engine/recipe_parameters.h"

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/option_words.h"
#include "base/regular_expression.h"
#include "base/text.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

Error usage(std::string message) {
    return makeError(ErrorCode::usage, std::move(message));
}

bool isName(std::string_view text) {
    if (text.empty() || text[0] == '.' || (text[0] >= '0' && text[0] <= '9')) return false;
    for (const char c : text) {
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
              c == '.'))
            return false;
    }
    return true;
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ')
        text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ')
        text.remove_suffix(1);
    return text;
}

std::vector<std::string> textsIn(const Json& value) {
    if (value.is_string()) return {value.get<std::string>()};
    return value.get<std::vector<std::string>>();
}

bool areTexts(const Json& value) {
    return value.is_string() ||
           (value.is_array() &&
            std::all_of(value.begin(), value.end(), [](const Json& j) { return j.is_string(); }));
}

}  // namespace

Result<RecipeParameters> RecipeParameters::make(const Json& declared, const std::vector<std::string>& set,
                                                const RecipeSource& source) {
    RecipeParameters all;
    all.source_ = &source;
    for (const auto& [name, value] : declared.items()) {
        if (!isName(name)) return usage(fmt::format("'parameters': '{}' is not a name", name));
        Parameter& parameter = all.parameters_[name];
        if (value.is_number_integer() || value.is_string()) {
            parameter.standard = value;
            continue;
        }
        if (!value.is_object())
            return usage(fmt::format("'parameters.{}' is neither a number nor an object", name));
        for (const auto& [key, item] : value.items()) {
            if (key == "config" && areTexts(item)) {
                parameter.config = textsIn(item);
            } else if (key == "args" && areTexts(item)) {
                parameter.args = textsIn(item);
            } else if (key == "shape" && item.is_object() && item.size() == 2 && item.contains("tensors") &&
                       item["tensors"].is_string() && item.contains("dim") &&
                       item["dim"].is_number_integer() && item["dim"].get<int64_t>() >= -kMaxRank &&
                       item["dim"].get<int64_t>() < kMaxRank) {
                parameter.tensors = item["tensors"].get<std::string>();
                parameter.dim = item["dim"].get<int>();
            } else if (key == "default" && (item.is_number_integer() || item.is_string())) {
                parameter.standard = item;
            } else if (key != "description" || !item.is_string()) {
                return usage(
                    fmt::format("'parameters.{}' holds '{}': {}, not 'config' or 'args' (names), 'shape' "
                                "(tensors and dim), "
                                "'default' (a number) or 'description' (text)",
                                name, key, dumpJson(item)));
            }
        }
    }
    for (const std::string& text : set) {
        const size_t equals = text.find('=');
        const auto value = equals == std::string::npos
                               ? std::nullopt
                               : parseNumber<int64_t>(std::string_view(text).substr(equals + 1));
        if (!value) return usage(fmt::format("{} '{}' is not NAME=INTEGER", option("set"), text));
        const auto it = all.parameters_.find(text.substr(0, equals));
        if (it == all.parameters_.end()) {
            std::vector<std::string_view> names;
            for (const auto& [name, parameter] : all.parameters_)
                names.push_back(name);
            return usage(fmt::format("{} '{}': the recipe has no such parameter (it has: {})", option("set"),
                                     text,
                                     names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
        }
        it->second.set = value;
    }
    return all;
}

// "a.b" is the entry of that name, or b inside a.
std::optional<int64_t> RecipeParameters::inConfig(const std::string& key) {
    return source_->config ? numberIn(source_->config->values, key) : std::nullopt;
}

std::optional<int64_t> RecipeParameters::inArgs(const std::string& key) {
    if (!args_) args_ = argumentsIn(source_->catalog, source_->object);
    return numberIn(*args_, key);
}

Result<std::optional<int64_t>> RecipeParameters::sizeOf(const Parameter& parameter) const {
    if (parameter.tensors.empty()) return std::optional<int64_t>();
    SHARDSCOPE_ASSIGN(const RegularExpression pattern, RegularExpression::parse(parameter.tensors));
    const Catalog& catalog = source_->catalog;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        const DimSpan shape = catalog.shape(t);
        const int dim = parameter.dim < 0 ? parameter.dim + static_cast<int>(shape.size()) : parameter.dim;
        if (dim < 0 || static_cast<size_t>(dim) >= shape.size() || !pattern.matchesWhole(catalog.name(t)))
            continue;
        return std::optional<int64_t>(shape[static_cast<size_t>(dim)]);
    }
    return std::optional<int64_t>();
}

Result<StepNumber> RecipeParameters::valueOf(const std::string& name, int depth) {
    const auto it = parameters_.find(name);
    if (it == parameters_.end())
        return usage(fmt::format("'{}' is not one of the recipe's parameters", name));
    const Parameter& parameter = it->second;
    const auto found = [&](int64_t value, const std::string& from) {
        used_[name] = fmt::format("{}, from {}", value, from);
        return StepNumber{value, {}};
    };
    if (parameter.set) return found(*parameter.set, option("set"));
    for (const std::string& key : parameter.config) {
        if (const auto value = inConfig(key)) return found(*value, key + " of " + source_->config->file);
    }
    for (const std::string& key : parameter.args) {
        if (const auto value = inArgs(key)) return found(*value, key + " of Megatron's args");
        // Megatron-Bridge calls them as Megatron's arguments do.
        if (const auto value = inConfig(key)) return found(*value, key + " of " + source_->config->file);
    }
    SHARDSCOPE_ASSIGN(const std::optional<int64_t> size, sizeOf(parameter));
    if (size) return found(*size, "the shapes of the source");
    if (parameter.standard.is_number_integer()) return StepNumber{parameter.standard.get<int64_t>(), {}};
    if (parameter.standard.is_string()) {
        SHARDSCOPE_ASSIGN(const StepNumber value, evaluate(parameter.standard.get<std::string>(), depth + 1));
        if (value.missing.empty()) found(value.value, parameter.standard.get<std::string>());
        return value;
    }
    std::string how = fmt::format("'{}' has no value: give {} {}=N", name, option("set"), name);
    if (!parameter.config.empty())
        how += fmt::format(", or put a config.json with {} beside the source", parameter.config.front());
    return StepNumber{0, how, name};
}

// Sums of products of numbers, names and parentheses.
class RecipeParameters::Expression {
  public:
    Expression(RecipeParameters& parameters, const std::string& text, int depth)
        : parameters_(parameters), text_(text), rest_(text), depth_(depth) {}

    Result<StepNumber> parse() {
        SHARDSCOPE_ASSIGN(StepNumber result, sum());
        if (!next().empty()) return wrong();
        return result;
    }

  private:
    Error wrong() const {
        return usage(
            fmt::format("'{}' is not integers and parameters joined by + - * / % and parentheses", text_));
    }

    std::string_view next() {
        rest_ = trimmed(rest_);
        return rest_.substr(0, 1);
    }

    bool take(std::string_view symbol) {
        if (next() != symbol) return false;
        rest_.remove_prefix(1);
        return true;
    }

    Status apply(char operation, StepNumber& left, const StepNumber& right) const {
        if (!left.missing.empty()) return {};
        if (!right.missing.empty()) {
            left.missing = right.missing;
            left.lacks = right.lacks;
            return {};
        }
        const int64_t before = left.value;
        const bool fits = operation == '+'   ? !__builtin_add_overflow(before, right.value, &left.value)
                          : operation == '-' ? !__builtin_sub_overflow(before, right.value, &left.value)
                          : operation == '*' ? !__builtin_mul_overflow(before, right.value, &left.value)
                                             : true;
        if (!fits) return usage(fmt::format("'{}' is too large", text_));
        if (operation == '%' && right.value > 0) left.value = before % right.value;
        if (operation == '%' && right.value <= 0)
            return usage(fmt::format("'{}' is not known: the remainder of {}", text_, right.value));
        if (operation != '/') return {};
        if (right.value <= 0 || before % right.value != 0) {
            left.missing = fmt::format("'{}' is not a whole number: {} / {}", text_, before, right.value);
        } else {
            left.value = before / right.value;
        }
        return {};
    }

    Result<StepNumber> sum() {
        SHARDSCOPE_ASSIGN(StepNumber result, product());
        while (next() == "+" || next() == "-") {
            const char operation = rest_.front();
            rest_.remove_prefix(1);
            SHARDSCOPE_ASSIGN(const StepNumber right, product());
            SHARDSCOPE_TRY(apply(operation, result, right));
        }
        return result;
    }

    Result<StepNumber> product() {
        SHARDSCOPE_ASSIGN(StepNumber result, term());
        while (next() == "*" || next() == "/" || next() == "%") {
            const char operation = rest_.front();
            rest_.remove_prefix(1);
            SHARDSCOPE_ASSIGN(const StepNumber right, term());
            SHARDSCOPE_TRY(apply(operation, result, right));
        }
        return result;
    }

    Result<StepNumber> term() {
        if (++depth_ > kDeepest) return usage(fmt::format("'{}' is nested too deep", text_));
        if (take("(")) {
            SHARDSCOPE_ASSIGN(StepNumber inner, sum());
            if (!take(")")) return wrong();
            --depth_;
            return inner;
        }
        const bool negative = take("-");
        next();
        const size_t end = std::min(rest_.find_first_of("+-*/%() "), rest_.size());
        const std::string_view word = rest_.substr(0, end);
        rest_.remove_prefix(end);
        --depth_;
        if (const auto integer = parseNumber<int64_t>(word); integer && word.front() != '-')
            return StepNumber{negative ? -*integer : *integer, {}};
        if (!isName(word) || negative) return wrong();
        return parameters_.valueOf(std::string(word), depth_);
    }

    static constexpr int kDeepest = 32;
    RecipeParameters& parameters_;
    const std::string& text_;
    std::string_view rest_;
    int depth_;
};

Result<StepNumber> RecipeParameters::evaluate(const std::string& text, int depth) {
    if (depth > 16) return usage(fmt::format("'{}' depends on itself", text));
    return Expression(*this, text, depth).parse();
}

Result<StepNumber> RecipeParameters::number(const Json& value) {
    if (value.is_number_integer()) return StepNumber{value.get<int64_t>(), {}};
    if (value.is_string()) return evaluate(value.get<std::string>(), 0);
    return usage(fmt::format("{} is neither an integer nor text", dumpJson(value)));
}

}  // namespace shardscope
