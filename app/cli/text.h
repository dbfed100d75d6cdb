// Text for terminals: tables; names from files made harmless.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "answers/json.h"
#include "base/text.h"
#include "base/units.h"

namespace shardscope::cli {

// Columns on the terminal, of UTF-8 text.
size_t displayWidth(std::string_view text);
// The beginning of a text without color sequences, in at most `most` columns.
std::string cutToWidth(std::string_view text, size_t most);
unsigned terminalWidth();

void printJson(const Json& json);                  // on stdout, one line
void printLine(std::FILE* out, const Json& json);  // one line, flushed

struct Style {
    bool on = false;
    std::string bold(std::string_view text) const { return wrap("1", text); }
    std::string dim(std::string_view text) const { return wrap("2", text); }
    std::string red(std::string_view text) const { return wrap("31", text); }
    std::string yellow(std::string_view text) const { return wrap("33", text); }
    std::string green(std::string_view text) const { return wrap("32", text); }
    std::string wrap(std::string_view code, std::string_view text) const;
};

// Rows with aligned columns.
class Table {
  public:
    enum class Align : uint8_t { left, right };
    explicit Table(std::vector<std::pair<std::string, Align>> columns) : columns_(std::move(columns)) {}
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
    bool empty() const { return rows_.empty(); }
    void print(std::FILE* out, const Style& style) const;
    void printCsv(std::FILE* out) const;

  private:
    std::vector<std::pair<std::string, Align>> columns_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace shardscope::cli
