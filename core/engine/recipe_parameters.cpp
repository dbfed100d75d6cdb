#include "engine/recipe_parameters.h"

#include <charconv>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

constexpr size_t kLargestConfig = 16 << 20;

Error usage(std::string message) {
    return makeError(ErrorCode::usage, std::move(message));
}

std::optional<int64_t> integerIn(std::string_view text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

bool isName(std::string_view text) {
    if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
    for (const char c : text) {
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'))
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

// A missing or unreadable file leaves the values open; only numbers are taken from it, and checked where
// used.
Json readConfig(const std::string& directory) {
    std::ifstream in(directory + "/config.json", std::ios::binary);
    std::string text(kLargestConfig, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(in.gcount()));
    if (text.empty() || text.size() == kLargestConfig) return {};
    // Depth is bounded before the parser sees it.
    int depth = 0;
    for (const char c : text) {
        depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
        if (depth > 64) return {};
    }
    Json config = Json::parse(text, nullptr, false);
    return config.is_object() ? config : Json();
}

}  // namespace

Result<RecipeParameters> RecipeParameters::make(const Json& declared, const std::vector<std::string>& set,
                                                const std::string& beside) {
    RecipeParameters all;
    bool wantsConfig = false;
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
            if (key == "config" && item.is_string()) {
                parameter.config = {item.get<std::string>()};
            } else if (key == "config" && item.is_array() &&
                       std::all_of(item.begin(), item.end(), [](const Json& j) { return j.is_string(); })) {
                parameter.config = item.get<std::vector<std::string>>();
            } else if (key == "default" && (item.is_number_integer() || item.is_string())) {
                parameter.standard = item;
            } else if (key != "description" || !item.is_string()) {
                return usage(
                    fmt::format("'parameters.{}' holds '{}': {}, not 'config' (names), 'default' (a number) "
                                "or 'description' (text)",
                                name, key, item.dump()));
            }
        }
        wantsConfig = wantsConfig || !parameter.config.empty();
    }
    if (wantsConfig && !beside.empty()) all.config_ = readConfig(beside);
    for (const std::string& text : set) {
        const size_t equals = text.find('=');
        const auto value =
            equals == std::string::npos ? std::nullopt : integerIn(std::string_view(text).substr(equals + 1));
        if (!value) return usage(fmt::format("--set '{}' is not NAME=INTEGER", text));
        const auto it = all.parameters_.find(text.substr(0, equals));
        if (it == all.parameters_.end()) {
            std::vector<std::string_view> names;
            for (const auto& [name, parameter] : all.parameters_)
                names.push_back(name);
            return usage(fmt::format("--set '{}': the recipe has no such parameter (it has: {})", text,
                                     names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
        }
        it->second.set = value;
    }
    return all;
}

Result<StepNumber> RecipeParameters::valueOf(const std::string& name, int depth) const {
    const auto it = parameters_.find(name);
    if (it == parameters_.end())
        return usage(fmt::format("'{}' is not one of the recipe's parameters", name));
    const Parameter& parameter = it->second;
    if (parameter.set) return StepNumber{*parameter.set, {}};
    if (config_.is_object()) {
        for (const std::string& key : parameter.config) {
            const auto found = config_.find(key);
            if (found != config_.end() && found->is_number_integer())
                return StepNumber{found->get<int64_t>(), {}};
        }
    }
    if (parameter.standard.is_number_integer()) return StepNumber{parameter.standard.get<int64_t>(), {}};
    if (parameter.standard.is_string()) return evaluate(parameter.standard.get<std::string>(), depth + 1);
    std::string how = fmt::format("'{}' has no value: give --set {}=N", name, name);
    if (!parameter.config.empty())
        how += fmt::format(", or put a config.json with {} beside the source", parameter.config.front());
    return StepNumber{0, how};
}

Result<StepNumber> RecipeParameters::evaluate(const std::string& text, int depth) const {
    if (depth > 16) return usage(fmt::format("'{}' depends on itself", text));
    StepNumber result{1, {}};
    char operation = '*';
    std::string_view rest = text;
    for (;;) {
        const size_t end = rest.find_first_of("*/");
        const std::string_view term = trimmed(rest.substr(0, end));
        StepNumber value;
        if (const auto integer = integerIn(term)) {
            value.value = *integer;
        } else if (isName(term)) {
            SHARDSCOPE_ASSIGN(value, valueOf(std::string(term), depth));
        } else {
            return usage(fmt::format("'{}' is not integers and parameters joined by * and /", text));
        }
        if (!value.missing.empty()) {
            if (result.missing.empty()) result.missing = value.missing;
        } else if (result.missing.empty()) {
            if (operation == '*') {
                if (!checkedMul(result.value, value.value, result.value))
                    return usage(fmt::format("'{}' is too large", text));
            } else if (value.value == 0 || result.value % value.value != 0) {
                result.missing =
                    fmt::format("'{}' is not a whole number: {} / {}", text, result.value, value.value);
            } else {
                result.value /= value.value;
            }
        }
        if (end == std::string_view::npos) return result;
        operation = rest[end];
        rest.remove_prefix(end + 1);
    }
}

Result<StepNumber> RecipeParameters::number(const Json& value) const {
    if (value.is_number_integer()) return StepNumber{value.get<int64_t>(), {}};
    if (value.is_string()) return evaluate(value.get<std::string>(), 0);
    return usage(fmt::format("{} is neither an integer nor text", value.dump()));
}

}  // namespace shardscope
