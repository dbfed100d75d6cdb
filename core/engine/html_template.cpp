#include "engine/html_template.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Scope = std::vector<const Json*>;

const Json& valueOf(const Scope& scope, const std::string& name) {
    static const Json none;
    if (name == ".") return *scope.back();
    for (auto each = scope.rbegin(); each != scope.rend(); ++each) {
        if (!(*each)->is_object()) continue;
        if (const auto it = (*each)->find(name); it != (*each)->end()) return *it;
    }
    return none;
}

bool isNothing(const Json& value) {
    return value.is_null() || value == false || value == 0 || value == "" ||
           (value.is_structured() && value.empty());
}

void fill(std::string_view text, Scope& scope, std::string& out) {
    for (;;) {
        const size_t open = std::min(text.find("{{"), text.size());
        out += text.substr(0, open);
        const size_t close = text.find("}}", open);
        if (close == std::string_view::npos) return;
        const char kind = text[open + 2];
        const bool section = kind == '#' || kind == '^';
        const std::string name(text.substr(open + 2 + section, close - open - 2 - section));
        text.remove_prefix(close + 2);
        const Json& value = valueOf(scope, name);
        if (!section) {
            out += escapedMarkup(value.is_string() ? value.get_ref<const std::string&>() : value.dump());
            continue;
        }
        const std::string mark = "{{/" + name + "}}";
        const size_t end = std::min(text.find(mark), text.size());
        const std::string_view body = text.substr(0, end);
        text.remove_prefix(std::min(text.size(), end + mark.size()));
        if (isNothing(value) != (kind == '^')) continue;
        const Json once = Json::array({kind == '^' ? Json() : value});
        for (const Json& item : value.is_array() && kind == '#' ? value : once) {
            scope.push_back(&item);
            fill(body, scope, out);
            scope.pop_back();
        }
    }
}

}  // namespace

std::string escapedMarkup(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
        const std::string_view one = text.substr(i, decodeUtf8(text.substr(i)).length);
        i += one.size();
        switch (one[0]) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            case '\n':
            case '\t':
                out += one;
                break;
            default:
                out += printable(one);
        }
    }
    return out;
}

std::string fillTemplate(std::string_view text, const Json& values) {
    Scope scope{&values};
    std::string out;
    fill(text, scope, out);
    return out;
}

}  // namespace shardscope
