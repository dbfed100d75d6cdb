// What drawings in SVG have in common: rectangles, texts, the shades of both themes. Texts are escaped.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope {

struct DrawnRect {
    double x = 0, y = 0, width = 0, height = 0;
    bool contains(double px, double py) const {
        return px >= x && py >= y && px < x + width && py < y + height;
    }
};

// Width of an average letter and height of a line, in pixels.
struct DrawnType {
    double letter = 6.2, line = 15;
};
// What `text` takes, going by its letters.
double lettersOf(std::string_view text, const DrawnType& type);
// Its end, behind "…", where it does not fit: what tells names apart is there.
std::string endOf(std::string_view text, double width, const DrawnType& type);

// A drawing, and what is where in it, in plain text.
struct DrawnPicture {
    struct Item {
        DrawnRect rect;
        std::string text;
        int kind = 0;  // its own to choose
    };
    std::string svg;
    double width = 0, height = 0;
    std::vector<Item> items;
    // What belongs to an item of this index, to be marked with it; null = nothing. It owns what it reads.
    std::function<std::vector<DrawnRect>(size_t)> linked;
};

namespace svg {

struct Shades {
    bool dark = false;
    std::string surface, panel, line, text, quiet;
};
Shades shadesOf(bool dark);

std::string color(uint32_t rgb);             // "#2a8c6a"
std::string escaped(std::string_view text);  // printable; lines stay lines
std::string rect(const DrawnRect& at, std::string_view attributes);
std::string text(double x, double y, std::string_view anchor, std::string_view cls, std::string_view color,
                 std::string_view text);
std::string centered(const DrawnRect& in, double down, std::string_view cls, std::string_view color,
                     std::string_view text);
// The first lines of a drawing: its size, its name, the surface. It ends with "</svg>".
std::string head(double width, double height, std::string_view cls, std::string_view title,
                 const Shades& shades);

// A drawing that stands alone, or beside others in one.
struct Part {
    std::string cls, title, text;
    double width = 0, height = 0;
};
std::string alone(const Part& part, const Shades& shades);
std::string placed(const Part& part, double x, double y);  // as a group of its class

constexpr double kBaseline = 4;  // below the middle of a line

}  // namespace svg

}  // namespace shardscope
