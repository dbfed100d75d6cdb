#include "engine/model_table.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "engine/embedded.h"
#include "engine/model_config.h"
#include "engine/recipe_parameters.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostOfACount = 1 << 14;
constexpr size_t kMostWanted = size_t{1} << 20;

enum class Truth : uint8_t { no, yes, unknown };

Truth truth(bool is) {
    return is ? Truth::yes : Truth::no;
}

const Json& knownModels() {
    static const Json table = Json::parse(embeddedText("transformers/models.json"), nullptr, false);
    return table;
}

std::string pointerOf(const std::string& key) {
    std::string pointer = "/" + key;
    std::ranges::replace(pointer, '.', '/');
    return pointer;
}

// Of "text_config.hidden_size"; null = it is not stated.
const Json* entryOf(const Json& config, const std::string& key) {
    const Json::json_pointer at(pointerOf(key));
    return config.contains(at) ? &config[at] : nullptr;
}

std::vector<std::string_view> partsOf(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        const size_t end = std::min(text.find(separator), text.size());
        parts.push_back(text.substr(0, end));
        text.remove_prefix(std::min(text.size(), end + 1));
    }
    return parts;
}

// One model of the table with the values of a configuration.
class Stated {
  public:
    Stated(const Json& model, const Json& config, const Catalog& target)
        : numbers_(model["numbers"]), target_(target) {
        auto values = std::make_shared<StatedConfig>(StatedConfig{config, "config.json"});
        if (const auto labels = config.find("id2label"); labels != config.end() && labels->is_object())
            values->values["num_labels"] = labels->size();
        declared_["i"] = 0;
        for (const auto& [name, value] : numbers_.items()) {
            // Its standard value and other names of it.
            const Json standard = value.is_array() ? value[0] : value;
            Json& entry = declared_[name] = {{"config", {name}}};
            for (size_t other = 1; value.is_array() && other < value.size(); ++other)
                entry["config"].push_back(name.substr(0, name.rfind('.') + 1) +
                                          value[other].get<std::string>());
            if (standard.is_number_integer() || standard.is_string()) entry["default"] = standard;
            const Json* stated = entryOf(config, name);
            if (stated && stated->is_null() && !standard.is_string())
                values->values[Json::json_pointer(pointerOf(name))] = 0;
        }
        source_ = std::make_unique<RecipeSource>(
            RecipeSource{std::move(values), target_, [](ObjectId) -> Result<Value> {
                             return makeError(ErrorCode::unsupported, "it is not written yet");
                         }});
    }

    // Whether the entries that may have certain values only have those.
    bool isCovered(const Json& only) const {
        return std::ranges::all_of(only.items(), [&](const auto& entry) {
            const Json* value = entryOf(source_->config->values, entry.key());
            if (!value) return true;
            if (!entry.value().is_array()) return !value->is_null() && *value != 0;
            return std::ranges::count(entry.value(), *value) > 0;
        });
    }

    // nullopt: not known. A remainder of a division by 0 is none either; conditions are false there.
    std::optional<int64_t> number(std::string_view text, int64_t i, bool* wrong = nullptr) {
        auto at = at_.find(i);
        if (at == at_.end()) {
            auto made = RecipeParameters::make(declared_, {"i=" + std::to_string(i)}, *source_);
            if (!made.ok()) return std::nullopt;
            at = at_.emplace(i, std::move(*made)).first;
        }
        const auto found = at->second.number(std::string(text));
        if (wrong) *wrong = !found.ok();
        if (!found.ok() || !found->missing.empty()) return std::nullopt;
        return found->value;
    }

    Truth all(std::string_view conditions, char separator, int64_t i) {
        Truth is = Truth::yes;
        for (const std::string_view part : partsOf(conditions, separator)) {
            const Truth one = literal(part, i);
            if (one == Truth::no) return one;
            if (one == Truth::unknown) is = one;
        }
        return is;
    }

  private:
    Truth literal(std::string_view text, int64_t i) {
        // Weights that are tied may be there all the same.
        if (text.starts_with('!') && text.ends_with("tie_word_embeddings") &&
            number(text.substr(1), i).value_or(0) != 0)
            return Truth::unknown;
        if (text.starts_with("!(")) {
            const Truth inner = all(text.substr(2, text.size() - 3), ';', i);
            return inner == Truth::unknown ? inner : truth(inner == Truth::no);
        }
        if (const size_t at = text.find(" in "); at != text.npos) return isIn(text.substr(at + 4), i);
        if (const size_t at = text.find(" notin "); at != text.npos) {
            const Truth in = isIn(text.substr(at + 7), i);
            return in == Truth::unknown ? in : truth(in == Truth::no);
        }
        if (const size_t at = text.find(" is "); at != text.npos)
            return isText(text.substr(0, at), text.substr(at + 4), i);
        if (const size_t at = text.find(" isnot "); at != text.npos) {
            const Truth is = isText(text.substr(0, at), text.substr(at + 7), i);
            return is == Truth::unknown ? is : truth(is == Truth::no);
        }
        const bool negated = text.starts_with('!');
        if (negated) text.remove_prefix(1);
        for (const std::string_view sign : {">=", "!=", "<", ">", "="}) {
            const size_t at = text.find(sign);
            if (at == text.npos) continue;
            bool wrong = false, wrongToo = false;
            const auto left = number(text.substr(0, at), i, &wrong),
                       right = number(text.substr(at + sign.size()), i, &wrongToo);
            if (wrong || wrongToo) return Truth::no;
            if (!left || !right) return Truth::unknown;
            return truth(sign == ">="   ? *left >= *right
                         : sign == "!=" ? *left != *right
                         : sign == "<"  ? *left < *right
                         : sign == ">"  ? *left > *right
                                        : *left == *right);
        }
        const auto value = number(text, i);
        return value ? truth((*value != 0) != negated) : Truth::unknown;
    }

    // Of the configuration, or what stands for it there.
    const Json* listOrText(std::string_view key) const {
        if (const Json* value = entryOf(source_->config->values, std::string(key))) return value;
        const auto known = numbers_.find(std::string(key));
        if (known == numbers_.end()) return nullptr;
        const Json& standard = known->is_array() && !known->empty() ? (*known)[0] : *known;
        return standard.is_null() || standard.is_number() ? nullptr : &standard;
    }

    Truth isIn(std::string_view key, int64_t i) const {
        const Json* list = listOrText(key);
        if (list && list->is_null()) return Truth::no;
        if (!list || !list->is_array()) return Truth::unknown;
        return truth(std::ranges::count(*list, Json(i)) > 0);
    }

    Truth isText(std::string_view key, std::string_view wanted, int64_t i) const {
        const bool element = key.ends_with("[i]");
        const Json* value = listOrText(key.substr(0, key.size() - (element ? 3 : 0)));
        if (element && value) {
            const bool inside = value->is_array() && i >= 0 && static_cast<size_t>(i) < value->size();
            value = inside ? &(*value)[static_cast<size_t>(i)] : nullptr;
        }
        if (!value) return Truth::unknown;
        return truth(value->is_string() ? value->get<std::string>() == wanted : value->dump() == wanted);
    }

    const Json& numbers_;
    Json declared_;
    std::unique_ptr<RecipeSource> source_;
    std::map<int64_t, RecipeParameters> at_;
    const Catalog& target_;
};

// The names of a line, with its counts put in. `there`: whether they are there, once the first count is
// known.
bool expand(Stated& stated, std::string_view rest, std::string name, std::optional<Truth> there,
            std::string_view conditions, WantedTensor& like, std::vector<WantedTensor>& wanted) {
    const size_t open = rest.find('{');
    name += rest.substr(0, open);
    if (open == rest.npos) {
        if (!there) there = stated.all(conditions, '&', -1);
        if (*there == Truth::no) return true;
        if (wanted.size() >= kMostWanted) return false;
        like.name = std::move(name);
        like.optional = *there == Truth::unknown;
        wanted.push_back(like);
        return true;
    }
    const size_t close = rest.find('}', open);
    const auto count = stated.number(rest.substr(open + 1, close - open - 1), 0);
    if (!count || *count < 0 || *count > kMostOfACount) return false;
    for (int64_t index = 0; index < *count; ++index) {
        const Truth here = there ? *there : stated.all(conditions, '&', index);
        if (here == Truth::no) continue;
        if (!expand(stated, rest.substr(close + 1), name + std::to_string(index), here, conditions, like,
                    wanted))
            return false;
    }
    return true;
}

bool addLine(Stated& stated, std::string_view line, std::string_view prefix, bool bare,
             std::vector<WantedTensor>& wanted) {
    const size_t dims = line.find('|'), conditions = line.find('|', dims + 1);
    std::string_view name = line.substr(0, dims);
    if (!name.starts_with(prefix)) return true;
    if (bare) name.remove_prefix(prefix.size());
    WantedTensor like;
    for (const std::string_view dim : partsOf(line.substr(dims + 1, conditions - dims - 1), ','))
        like.shape.push_back(dim == "?" ? std::nullopt : stated.number(dim, 0));
    return expand(stated, name, {}, std::nullopt, line.substr(conditions + 1), like, wanted);
}

}  // namespace

std::optional<WantedModel> wantedOfModel(const Json& config, const std::string& modelType,
                                         const std::string& className, const Catalog& target) {
    const Json& table = knownModels();
    if (!table.is_object() || !config.is_object()) return std::nullopt;
    const auto model = table["models"].find(modelType);
    if (model == table["models"].end()) return std::nullopt;
    // Another class of the same configuration has the tensors behind the prefix, and some of its own.
    Json own = Json::array();
    const std::string& main = (*model)["class"].get_ref<const std::string&>();
    if (!className.empty() && className != main) {
        const auto found = (*model)["classes"].find(className);
        // from_pretrained() of an auto class goes by model_type.
        const bool named = found != (*model)["classes"].end();
        const size_t purpose = main.rfind("For");
        if (!named && (purpose == main.npos || !className.ends_with(main.substr(purpose))))
            return std::nullopt;
        if (named) own = *found;
    }
    Stated stated(*model, config, target);
    if (!stated.isCovered(model->value("only", Json::object()))) return std::nullopt;
    const bool bare = !own.empty() && own[0] == "-";
    const bool whole = own.empty() || own[0] == "=";
    const std::string prefix = whole ? "" : (*model)["prefix"].get<std::string>() + ".";
    WantedModel wanted;
    for (const Json& lines : (*model)["tensors"]) {
        std::vector<WantedTensor>& tensors = wanted.spellings.emplace_back();
        const Json& all = table["lines"];
        for (const Json& line : lines) {
            if (!addLine(stated, all[line.get<size_t>()].get_ref<const std::string&>(), prefix, bare,
                         tensors))
                return std::nullopt;
        }
        for (size_t line = 1; line < own.size(); ++line) {
            if (!addLine(stated, own[line].get_ref<const std::string&>(), "", false, tensors))
                return std::nullopt;
        }
    }
    for (const Json& pattern : model->value("ignored", Json::array()))
        wanted.ignored.push_back(pattern.get<std::string>());
    return wanted;
}

}  // namespace shardscope
