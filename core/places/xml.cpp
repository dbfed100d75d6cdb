#include "places/xml.h"

#include <fmt/format.h>

#include "base/text.h"

namespace shardscope {
namespace {

constexpr size_t kMostDepth = 32;

// "&amp;" and "&#34;" in plain text; what is no entity stays.
std::string plainText(std::string_view text) {
    struct Entity {
        std::string_view name;
        char value;
    };
    constexpr Entity entities[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const size_t end = text.front() == '&' ? text.substr(0, 12).find(';') : std::string_view::npos;
        if (end == std::string_view::npos) {
            const size_t plain = std::min(text.find('&', 1), text.size());
            out += text.substr(0, plain);
            text.remove_prefix(plain);
            continue;
        }
        std::string_view name = text.substr(1, end - 1);
        bool known = false;
        for (const Entity& entity : entities) {
            if (name == entity.name) out += entity.value, known = true;
        }
        if (!known && name.starts_with('#')) {
            name.remove_prefix(1);
            const bool hex = name.starts_with('x');
            if (hex) name.remove_prefix(1);
            uint32_t code = 0;
            const auto [last, error] =
                std::from_chars(name.data(), name.data() + name.size(), code, hex ? 16 : 10);
            known = error == std::errc() && last == name.data() + name.size() && code > 0 && code < 0x110000;
            if (known) appendUtf8(out, code);
        }
        if (!known) out += text.substr(0, end + 1);
        text.remove_prefix(end + 1);
    }
    return out;
}

bool isBlank(std::string_view text) {
    return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

Error XmlReader::broken(std::string_view what) const {
    return damaged(fmt::format("the XML {}", what), all_ - rest_.size());
}

Result<XmlReader::Event> XmlReader::next() {
    if (!closing_.empty()) return Event{Event::Kind::close, std::exchange(closing_, {}), {}};
    for (;;) {
        if (rest_.empty()) {
            if (!open_.empty()) return broken("breaks off");
            return Event{};
        }
        if (rest_.front() != '<') {
            const size_t end = std::min(rest_.find('<'), rest_.size());
            Event event{Event::Kind::text, {}, plainText(rest_.substr(0, end))};
            rest_.remove_prefix(end);
            if (open_.empty() && !isBlank(event.text)) return broken("has text outside of its element");
            if (open_.empty()) continue;
            return event;
        }
        const std::string_view skipped = rest_.starts_with("<?")     ? "?>"
                                         : rest_.starts_with("<!--") ? "-->"
                                                                     : "";
        if (skipped.empty()) break;
        const size_t end = rest_.find(skipped);
        if (end == std::string_view::npos) return broken("breaks off");
        rest_.remove_prefix(end + skipped.size());
    }
    if (rest_.starts_with("<!")) return broken("has a declaration, which is not read");
    return tag();
}

Result<XmlReader::Event> XmlReader::tag() {
    const size_t end = rest_.find('>');
    if (end == std::string_view::npos) return broken("breaks off");
    std::string_view inner = rest_.substr(1, end - 1);
    const bool closes = inner.starts_with('/'), empty = inner.ends_with('/');
    if (closes) inner.remove_prefix(1);
    if (empty && !inner.empty()) inner.remove_suffix(1);
    inner = inner.substr(0, inner.find_first_of(" \t\r\n"));
    if (const size_t colon = inner.find(':'); colon != std::string_view::npos) inner.remove_prefix(colon + 1);
    if (inner.empty()) return broken("has an element without a name");
    std::string name(inner);
    if (closes) {
        if (open_.empty() || open_.back() != name) return broken("closes an element that is not open");
        open_.pop_back();
    } else if (empty) {
        closing_ = name;
    } else {
        if (open_.size() == kMostDepth) return broken("is nested too deep");
        open_.push_back(name);
    }
    rest_.remove_prefix(end + 1);
    return Event{closes ? Event::Kind::close : Event::Kind::open, std::move(name), {}};
}

Status readXml(std::string_view text,
               const std::function<Status(std::string_view path, std::string_view text)>& leaf,
               const std::function<Status(std::string_view path)>& closed) {
    XmlReader reader(text);
    std::string path, value;
    bool leafSoFar = false;
    for (;;) {
        SHARDSCOPE_ASSIGN(const auto event, reader.next());
        switch (event.kind) {
            case XmlReader::Event::Kind::end:
                return {};
            case XmlReader::Event::Kind::open:
                path += path.empty() ? event.name : "/" + event.name;
                value.clear();
                leafSoFar = true;
                break;
            case XmlReader::Event::Kind::text:
                value += event.text;
                break;
            case XmlReader::Event::Kind::close:
                if (leafSoFar) {
                    SHARDSCOPE_TRY(leaf(path, value));
                } else if (closed) {
                    SHARDSCOPE_TRY(closed(path));
                }
                path.resize(path.size() - std::min(path.size(), event.name.size() + 1));
                value.clear();
                leafSoFar = false;
        }
    }
}

}  // namespace shardscope
