#include "formats/orbax/metadata.h"

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"
#include "encoding/json_value.h"
#include "model/value_view.h"

namespace shardscope::orbax {

namespace {

Error wrongTree(std::string message) {
    return damaged(std::move(message)).byRule(rule::metaInconsistent);
}

// key_type: 1 = index of a sequence, 2 = key of a dict or name of an attribute.
Result<Path> pathOf(ValueView keys) {
    if (!keys.isList()) return wrongTree("the keys of a leaf are not a list");
    Path path;
    for (const ValueView key : keys.items()) {
        const auto spelled = key["key"].text();
        if (!spelled) return wrongTree("a key of a leaf is not a text");
        const auto index = parseNumber<int64_t>(*spelled, 0);
        path.push_back(index && key["key_type"].integer() == 1 ? indexPart(*index) : keyPart(*spelled));
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
    const Value document = jsonValue(text);
    const ValueView all = document, leaves = all["tree_metadata"];
    if (!leaves.isMapping()) return wrongTree("it is not the JSON of a tree of arrays");
    Tree tree;
    tree.storesFill = all["store_array_data_equal_to_fill_value"].isTrue();
    for (const auto& [spelled, entry] : leaves.pairs()) {
        const ValueView keys = entry["key_metadata"], value = entry["value_metadata"];
        if (!keys || !value)
            return wrongTree(fmt::format("the leaf '{}' has no keys or no type",
                                         printable(spelled.textOr({}), kNameInMessage)));
        Leaf leaf;
        SHARDSCOPE_ASSIGN(leaf.path, pathOf(keys));
        leaf.name = pathName(leaf.path);
        leaf.kind = kindOf(value["value_type"].textOr({}), value["skip_deserialize"].isTrue());
        tree.writeShapes = tree.writeShapes || value["write_shape"];
        tree.leaves.push_back(std::move(leaf));
    }
    return tree;
}

Result<std::map<std::string, std::string, std::less<>>> parseStrings(std::string_view text) {
    const Value document = jsonValue(text);
    if (!ValueView(document).isMapping()) return wrongTree("it is not a JSON object of texts");
    std::map<std::string, std::string, std::less<>> strings;
    for (const auto& [name, value] : ValueView(document).pairs()) {
        if (!value.text()) return wrongTree("it is not a JSON object of texts");
        strings[name.textOr({})] = *value.text();
    }
    return strings;
}

Result<std::map<std::string, Dims, std::less<>>> parseArrayMetadatas(std::string_view text) {
    const Value document = jsonValue(text);
    const ValueView list = ValueView(document)["array_metadatas"];
    if (!list.isList()) return wrongTree("it is not the JSON of a list of arrays");
    std::map<std::string, Dims, std::less<>> chunks;
    for (const ValueView entry : list.items()) {
        const ValueView array = entry["array_metadata"], sizes = array["chunk_shape"];
        if (!sizes.isList()) continue;
        Dims shape;
        for (const ValueView size : sizes.items())
            shape.push_back(size.integer().value_or(-1));
        chunks[array["param_name"].textOr({})] = std::move(shape);
    }
    return chunks;
}

StepMetadata parseStepMetadata(std::string_view text) {
    StepMetadata step;
    const Value document = jsonValue(text);
    const ValueView all = document, committed = all["commit_timestamp_nsecs"];
    step.unfinished = all["init_timestamp_nsecs"].number() && (!committed || committed.is(ValueKind::none));
    for (const auto& [item, handler] : all["item_handlers"].pairs())
        step.handlers[item.textOr({})] = handler.textOr({});
    return step;
}

}  // namespace shardscope::orbax
