#include "encoding/key_literal.h"

#include <charconv>
#include <string>

namespace shardscope::torch_save {

namespace {

class Parser {
  public:
    explicit Parser(std::string_view text) : rest_(text) {}

    Value parse() {
        const NodeId node = value(0);
        if (node == kNoNode || !rest_.empty()) return {};
        return makeValue(std::move(graph_), node);
    }

  private:
    static constexpr int kMaxDepth = 16;

    bool take(std::string_view word) {
        if (!rest_.starts_with(word)) return false;
        rest_.remove_prefix(word.size());
        return true;
    }
    void space() {
        while (take(" ")) {
        }
    }

    NodeId value(int depth) {
        if (depth > kMaxDepth || rest_.empty()) return kNoNode;
        if (take("None")) return graph_.addNone();
        if (take("True")) return graph_.addBoolean(true);
        if (take("False")) return graph_.addBoolean(false);
        if (rest_[0] == '(') return tuple(depth);
        if (rest_[0] == '\'' || rest_[0] == '"') return quoted(ValueKind::text);
        if (rest_[0] == 'b' && rest_.size() > 1 && (rest_[1] == '\'' || rest_[1] == '"')) {
            rest_.remove_prefix(1);
            return quoted(ValueKind::bytes);
        }
        return number();
    }

    NodeId tuple(int depth) {
        rest_.remove_prefix(1);
        std::vector<NodeId> items;
        bool comma = false;
        for (space(); !take(")"); space()) {
            if (!items.empty() && !comma) return kNoNode;
            const NodeId item = value(depth + 1);
            if (item == kNoNode) return kNoNode;
            items.push_back(item);
            space();
            comma = take(",");
        }
        if (items.size() == 1 && !comma) return kNoNode;  // just brackets
        return graph_.addContainer(ValueKind::tuple, items);
    }

    NodeId quoted(ValueKind kind) {
        const char quote = rest_[0];
        std::string text;
        for (size_t i = 1; i < rest_.size(); ++i) {
            const char c = rest_[i];
            if (c == quote) {
                rest_.remove_prefix(i + 1);
                return graph_.addText(kind, text);
            }
            if (c != '\\') {
                text += c;
                continue;
            }
            if (++i == rest_.size()) return kNoNode;
            switch (rest_[i]) {
                case '\\':
                case '\'':
                case '"':
                    text += rest_[i];
                    break;
                case 'n':
                    text += '\n';
                    break;
                case 't':
                    text += '\t';
                    break;
                case 'r':
                    text += '\r';
                    break;
                case 'x': {
                    unsigned byte = 0;
                    const char* digits = rest_.data() + i + 1;
                    if (rest_.size() - i < 3 ||
                        std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
                        return kNoNode;
                    if (kind == ValueKind::text && byte >= 0x80) return kNoNode;
                    text += static_cast<char>(byte);
                    i += 2;
                    break;
                }
                default:
                    return kNoNode;
            }
        }
        return kNoNode;
    }

    NodeId number() {
        const size_t end = std::min(rest_.find_first_of(",) "), rest_.size());
        const char* first = rest_.data();
        const char* last = first + end;
        NodeId node = kNoNode;
        int64_t integer = 0;
        double real = 0;
        if (const auto parsed = std::from_chars(first, last, integer);
            parsed.ec == std::errc() && parsed.ptr == last) {
            node = graph_.addInteger(integer);
        } else if (const auto again = std::from_chars(first, last, real);
                   again.ec == std::errc() && again.ptr == last && end > 0) {
            node = graph_.addReal(real);
        }
        rest_.remove_prefix(end);
        return node;
    }

    std::string_view rest_;
    ValueGraph graph_;
};

}  // namespace

Value parseKeyLiteral(std::string_view text) {
    return Parser(text).parse();
}

}  // namespace shardscope::torch_save
