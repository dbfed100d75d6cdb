#include "cli/schema_check.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>

namespace shardscope::test {
namespace {

using nlohmann::json;

// The schema "diff"; null where there is none.
const json& schemaNamed(const std::string& name) {
    static std::map<std::string, json> known;
    const auto [it, fresh] = known.try_emplace(name);
    if (fresh) {
        std::ifstream file(SHARDSCOPE_SCHEMAS "/" + name + ".json");
        if (file) it->second = json::parse(file, nullptr, false);
    }
    return it->second;
}

bool isType(const json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "boolean") return value.is_boolean();
    return type == "null" && value.is_null();
}

struct Place {
    const json* schema;
    const json* root;  // what "#/" begins at
};

std::optional<Place> referred(const std::string& reference, const json& root) {
    static const std::string kHere = "#/", kOther = "urn:shardscope:";
    if (reference.starts_with(kHere)) {
        const json::json_pointer pointer(reference.substr(1));
        if (!root.contains(pointer)) return std::nullopt;
        return Place{&root.at(pointer), &root};
    }
    if (!reference.starts_with(kOther) || !reference.ends_with(":1")) return std::nullopt;
    const json& other = schemaNamed(reference.substr(kOther.size(), reference.size() - kOther.size() - 2));
    if (!other.is_object()) return std::nullopt;
    return Place{&other, &other};
}

class Check {
  public:
    // What does not fit, with where it is; empty = all of it does.
    std::string run(const json& value, const json& schema, const json& root, const std::string& where) const {
        if (const auto reference = schema.find("$ref"); reference != schema.end()) {
            const auto place = referred(reference->get<std::string>(), root);
            if (!place) return where + ": " + reference->get<std::string>() + " leads nowhere";
            if (std::string wrong = run(value, *place->schema, *place->root, where); !wrong.empty())
                return wrong;
        }
        if (const auto any = schema.find("anyOf"); any != schema.end()) {
            std::string wrong;
            for (const json& each : *any) {
                wrong = run(value, each, root, where);
                if (wrong.empty()) break;
            }
            if (!wrong.empty()) return wrong;
        }
        if (const auto types = schema.find("type"); types != schema.end()) {
            const json all = types->is_array() ? *types : json::array({*types});
            if (std::ranges::none_of(all, [&](const json& type) { return isType(value, type); }))
                return where + ": " + value.dump() + " is not of type " + types->dump();
        }
        if (schema.contains("const") && value != schema["const"])
            return where + ": " + value.dump() + " is not " + schema["const"].dump();
        if (schema.contains("enum") && std::ranges::count(schema["enum"], value) == 0)
            return where + ": " + value.dump() + " is not one of " + schema["enum"].dump();
        if (value.is_number() && schema.contains("minimum") && value < schema["minimum"])
            return where + ": " + value.dump() + " is too small";
        if (value.is_number() && schema.contains("maximum") && value > schema["maximum"])
            return where + ": " + value.dump() + " is too large";
        if (value.is_array() && schema.contains("items")) {
            for (size_t i = 0; i < value.size(); ++i) {
                std::string wrong =
                    run(value[i], schema["items"], root, where + "[" + std::to_string(i) + "]");
                if (!wrong.empty()) return wrong;
            }
        }
        return value.is_object() ? fields(value, schema, root, where) : std::string();
    }

  private:
    std::string fields(const json& value, const json& schema, const json& root,
                       const std::string& where) const {
        for (const json& name : schema.value("required", json::array()))
            if (!value.contains(name.get<std::string>())) return where + ": has no " + name.dump();
        const json dependent = schema.value("dependentRequired", json::object());
        for (const auto& [name, others] : dependent.items())
            for (const json& other : others)
                if (value.contains(name) && !value.contains(other.get<std::string>()))
                    return where + ": has " + name + " and no " + other.dump();
        const bool named = schema.contains("properties"), mapped = schema.contains("additionalProperties");
        for (const auto& [name, field] : value.items()) {
            const std::string at = where + "." + name;
            std::string wrong;
            if (named && schema["properties"].contains(name))
                wrong = run(field, schema["properties"][name], root, at);
            else if (mapped)
                wrong = run(field, schema["additionalProperties"], root, at);
            else if (named)
                wrong = at + ": the schema does not have this field";
            if (!wrong.empty()) return wrong;
        }
        return {};
    }
};

}  // namespace

std::string schemaViolation(const json& document) {
    if (!document.is_object()) return {};
    const std::string id = document.value("schema", std::string());
    static const std::string kOurs = "shardscope.";
    if (!id.starts_with(kOurs) || !id.ends_with("/1")) return {};
    const json& schema = schemaNamed(id.substr(kOurs.size(), id.size() - kOurs.size() - 2));
    if (!schema.is_object()) return {};
    return Check().run(document, schema, schema, id);
}

std::string unknownInSchema(const json& schema) {
    static const std::set<std::string> kWords{"$schema",
                                              "$id",
                                              "$ref",
                                              "$defs",
                                              "title",
                                              "description",
                                              "type",
                                              "const",
                                              "properties",
                                              "required",
                                              "items",
                                              "minimum",
                                              "additionalProperties",
                                              "maximum",
                                              "anyOf",
                                              "enum",
                                              "dependentRequired"};
    std::string unknown;
    const auto look = [&](const json& at) { unknown += unknownInSchema(at); };
    for (const auto& [word, value] : schema.items()) {
        if (!kWords.contains(word)) unknown += word + " ";
        if (word == "properties" || word == "$defs")
            for (const auto& each : value.items())
                look(each.value());
        if (word == "anyOf") std::ranges::for_each(value, look);
        if (word == "items" || word == "additionalProperties") look(value);
    }
    return unknown;
}

}  // namespace shardscope::test
