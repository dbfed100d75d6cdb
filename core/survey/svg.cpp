#include "survey/svg.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"

namespace shardscope {

double lettersOf(std::string_view text, const DrawnType& type) {
    const auto count = std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
    return static_cast<double>(count) * type.letter;
}

std::string endOf(std::string_view text, double width, const DrawnType& type) {
    if (lettersOf(text, type) <= width) return std::string(text);
    const double room = width - type.letter;
    while (!text.empty() && lettersOf(text, type) > room) {
        text.remove_prefix(1);
        while (!text.empty() && (text.front() & 0xc0) == 0x80)
            text.remove_prefix(1);
    }
    return "…" + std::string(text);
}

namespace svg {

Shades shadesOf(bool dark) {
    return dark ? Shades{true, "#1e1e1e", "#26272a", "#4d5158", "#e4e6e9", "#9ca2ab"}
                : Shades{false, "#ffffff", "#fbfbfc", "#c4c9d0", "#1f2328", "#5f6670"};
}

std::string color(uint32_t rgb) {
    return fmt::format("#{:06x}", rgb);
}

std::string escaped(std::string_view text) {
    std::string out;
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
        out += escaped(text.substr(0, end)) + "\n";
        text.remove_prefix(end + 1);
    }
    for (const char c : printable(text)) {
        if (c == '&')
            out += "&amp;";
        else if (c == '<')
            out += "&lt;";
        else if (c == '"')
            out += "&quot;";
        else
            out += c;
    }
    return out;
}

std::string rect(const DrawnRect& at, std::string_view attributes) {
    return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" {}/>", at.x, at.y,
                       at.width, at.height, attributes);
}

std::string text(double x, double y, std::string_view anchor, std::string_view cls, std::string_view color,
                 std::string_view text) {
    return fmt::format(
        "<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>", cls, x, y,
        anchor, color, escaped(text));
}

std::string centered(const DrawnRect& in, double down, std::string_view cls, std::string_view color,
                     std::string_view words) {
    return text(in.x + in.width / 2, in.y + in.height / 2 + down, "middle", cls, color, words);
}

std::string head(double width, double height, std::string_view cls, std::string_view title,
                 const Shades& shades) {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" class=\"{2}\" role=\"img\" "
        "font-family=\"system-ui, sans-serif\" font-size=\"11\">\n<title>{3}</title>\n{4}\n",
        width, height, cls, escaped(title),
        rect({0, 0, width, height}, fmt::format("class=\"surface\" fill=\"{}\"", shades.surface)));
}

std::string alone(const Part& part, const Shades& shades) {
    return head(std::max(1.0, part.width), std::max(1.0, part.height), part.cls, part.title, shades) +
           part.text + "</svg>\n";
}

std::string placed(const Part& part, double x, double y) {
    return fmt::format("<g class=\"{}\" transform=\"translate({:.1f} {:.1f})\">\n", part.cls, x, y) +
           part.text + "</g>\n";
}

}  // namespace svg

}  // namespace shardscope
