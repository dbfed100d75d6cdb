#include "cli/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text.h"

namespace shardscope::cli {

namespace {

size_t widthOf(const CodePoint& point) {
    const uint32_t code = point.value;
    const bool wide =
        point.valid && ((code >= 0x1100 && code <= 0x115F) || (code >= 0x2E80 && code <= 0xA4CF) ||
                        (code >= 0xAC00 && code <= 0xD7A3) || (code >= 0xF900 && code <= 0xFAFF) ||
                        (code >= 0xFE30 && code <= 0xFE6F) || (code >= 0xFF00 && code <= 0xFF60) ||
                        (code >= 0x1F300 && code <= 0x1FAFF));
    return wide ? 2 : 1;
}

}  // namespace

size_t displayWidth(std::string_view text) {
    size_t width = 0;
    for (size_t i = 0; i < text.size();) {
        if (text[i] == '\x1b') {  // a color sequence of ours
            const size_t end = text.find('m', i);
            i = end == std::string_view::npos ? text.size() : end + 1;
            continue;
        }
        const CodePoint point = decodeUtf8(text.substr(i));
        width += widthOf(point);
        i += point.length;
    }
    return width;
}

std::string cutToWidth(std::string_view text, size_t most) {
    size_t end = 0;
    for (size_t width = 0; end < text.size();) {
        const CodePoint point = decodeUtf8(text.substr(end));
        width += widthOf(point);
        if (width > most) break;
        end += point.length;
    }
    return std::string(text.substr(0, end));
}

unsigned terminalWidth() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    if (const char* columns = std::getenv("COLUMNS")) {
        const int value = std::atoi(columns);
        if (value > 20) return static_cast<unsigned>(value);
    }
    return 100;
}

void printJson(const Json& json) {
    printLine(stdout, json);
}

void printLine(std::FILE* out, const Json& json) {
    const std::string text = dump(json) + "\n";
    std::fwrite(text.data(), 1, text.size(), out);
    std::fflush(out);
}

std::string Style::wrap(std::string_view code, std::string_view text) const {
    return on ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

void Table::print(std::FILE* out, const Style& style) const {
    std::vector<size_t> widths;
    for (const auto& column : columns_)
        widths.push_back(displayWidth(column.first));
    for (const auto& row : rows_) {
        for (size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], displayWidth(row[i]));
    }
    const auto line = [&](const std::vector<std::string>& cells, bool header) {
        std::string text;
        for (size_t i = 0; i < cells.size(); ++i) {
            const std::string pad(widths[i] - displayWidth(cells[i]), ' ');
            const bool last = i + 1 == cells.size();
            const std::string cell = header ? style.bold(cells[i]) : cells[i];
            text += columns_[i].second == Align::right ? pad + cell : last ? cell : cell + pad;
            if (!last) text += "  ";
        }
        text += '\n';
        std::fwrite(text.data(), 1, text.size(), out);
    };
    std::vector<std::string> titles;
    for (const auto& column : columns_)
        titles.push_back(column.first);
    line(titles, true);
    for (const auto& row : rows_)
        line(row, false);
}

void Table::printCsv(std::FILE* out) const {
    // Exact for programs; a terminal gets nothing that it would obey.
    const bool terminal = isatty(fileno(out));
    const auto line = [&](const std::vector<std::string>& cells) {
        std::string text;
        for (size_t i = 0; i < cells.size(); ++i) {
            if (i) text += ',';
            const std::string cell = terminal ? printable(cells[i]) : cells[i];
            if (cell.find_first_of(",\"\n\r") == std::string::npos) {
                text += cell;
                continue;
            }
            text += '"';
            for (char c : cell)
                text += c == '"' ? std::string("\"\"") : std::string(1, c);
            text += '"';
        }
        text += '\n';
        std::fwrite(text.data(), 1, text.size(), out);
    };
    std::vector<std::string> titles;
    for (const auto& column : columns_)
        titles.push_back(column.first);
    line(titles);
    for (const auto& row : rows_)
        line(row);
}

}  // namespace shardscope::cli
