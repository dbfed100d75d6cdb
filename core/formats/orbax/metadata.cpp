#include "formats/orbax/metadata.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"

namespace shardscope::orbax {

namespace {

using nlohmann::json;

Error wrongTree(std::string message) {
    return damaged(std::move(message)).byRule(rule::metaInconsistent);
}

const json* find(const json& object, const char* key) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
}

std::string textAt(const json& object, const char* key) {
    const json* found = find(object, key);
    return found && found->is_string() ? found->get<std::string>() : std::string();
}

bool flagAt(const json& object, const char* key) {
    const json* found = find(object, key);
    return found && found->is_boolean() && found->get<bool>();
}

// key_type: 1 = index of a sequence, 2 = key of a dict or name of an attribute.
Result<Path> pathOf(const json& keys) {
    if (!keys.is_array()) return wrongTree("the keys of a leaf are not a list");
    Path path;
    for (const json& key : keys) {
        const json* text = find(key, "key");
        const json* type = find(key, "key_type");
        if (!text || !text->is_string()) return wrongTree("a key of a leaf is not a text");
        const auto& spelled = text->get_ref<const std::string&>();
        const auto index = parseNumber<int64_t>(spelled, 0);
        if (type && *type == 1 && index) {
            path.push_back(indexPart(*index));
        } else {
            path.push_back(keyPart(spelled));
        }
    }
    return path;
}

Leaf::Kind kindOf(std::string_view type, bool skipped) {
    if (type == "string") return Leaf::Kind::text;
    if (!skipped) return Leaf::Kind::array;
    if (type == "Dict") return Leaf::Kind::emptyDict;
    if (type == "List") return Leaf::Kind::emptyList;
    if (type == "Tuple" || type == "NamedTuple") return Leaf::Kind::emptyTuple;
    return Leaf::Kind::none;
}

}  // namespace

Result<Tree> parseTree(std::string_view text) {
    const json document = json::parse(text, nullptr, false);
    const json* leaves = find(document, "tree_metadata");
    if (!leaves || !leaves->is_object()) return wrongTree("it is not the JSON of a tree of arrays");
    Tree tree;
    tree.storesFill = flagAt(document, "store_array_data_equal_to_fill_value");
    for (const auto& [spelled, entry] : leaves->items()) {
        const json* keys = find(entry, "key_metadata");
        const json* value = find(entry, "value_metadata");
        if (!keys || !value)
            return wrongTree(
                fmt::format("the leaf '{}' has no keys or no type", printable(spelled, kNameInMessage)));
        Leaf leaf;
        SHARDSCOPE_ASSIGN(leaf.path, pathOf(*keys));
        leaf.name = pathName(leaf.path);
        leaf.kind = kindOf(textAt(*value, "value_type"), flagAt(*value, "skip_deserialize"));
        tree.writeShapes = tree.writeShapes || find(*value, "write_shape") != nullptr;
        tree.leaves.push_back(std::move(leaf));
    }
    return tree;
}

Result<std::map<std::string, std::string, std::less<>>> parseStrings(std::string_view text) {
    const json document = json::parse(text, nullptr, false);
    if (!document.is_object()) return wrongTree("it is not a JSON object of texts");
    std::map<std::string, std::string, std::less<>> strings;
    for (const auto& [name, value] : document.items()) {
        if (!value.is_string()) return wrongTree("it is not a JSON object of texts");
        strings[name] = value.get<std::string>();
    }
    return strings;
}

Result<std::map<std::string, Dims, std::less<>>> parseArrayMetadatas(std::string_view text) {
    const json document = json::parse(text, nullptr, false);
    const json* list = find(document, "array_metadatas");
    if (!list || !list->is_array()) return wrongTree("it is not the JSON of a list of arrays");
    std::map<std::string, Dims, std::less<>> chunks;
    for (const json& entry : *list) {
        const json* array = find(entry, "array_metadata");
        const json* sizes = array ? find(*array, "chunk_shape") : nullptr;
        if (!sizes || !sizes->is_array()) continue;
        Dims shape;
        for (const json& size : *sizes)
            shape.push_back(size.is_number_integer() ? size.get<int64_t>() : -1);
        chunks[textAt(*array, "param_name")] = std::move(shape);
    }
    return chunks;
}

StepMetadata parseStepMetadata(std::string_view text) {
    StepMetadata step;
    const json document = json::parse(text, nullptr, false);
    const json* committed = find(document, "commit_timestamp_nsecs");
    const json* begun = find(document, "init_timestamp_nsecs");
    step.unfinished = begun && begun->is_number() && (!committed || committed->is_null());
    if (const json* handlers = find(document, "item_handlers"); handlers && handlers->is_object()) {
        for (const auto& [item, handler] : handlers->items())
            step.handlers[item] = handler.is_string() ? handler.get<std::string>() : std::string();
    }
    return step;
}

}  // namespace shardscope::orbax
