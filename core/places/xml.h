// A pull parser for the XML that object stores answer with: elements, text, the five named entities and
// numeric ones. Skips attributes, comments, processing instructions and namespaces; refuses a DOCTYPE. The
// text is untrusted: nesting is limited, and nothing is allocated but what is returned.
// Source: https://www.w3.org/TR/xml/
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace shardscope {

class XmlReader {
  public:
    // `text` must outlive the reader.
    explicit XmlReader(std::string_view text) : rest_(text), all_(text.size()) {}

    struct Event {
        enum class Kind : uint8_t { open, close, text, end };
        Kind kind = Kind::end;
        std::string name;  // of an element, without its prefix
        std::string text;
    };
    // Errors: damaged, with the byte in the text.
    Result<Event> next();

  private:
    Result<Event> tag();
    Error broken(std::string_view what) const;

    std::string_view rest_;
    size_t all_;
    std::string closing_;            // name of an empty element, whose end is the next event
    std::vector<std::string> open_;  // names of the open elements
};

// Calls `leaf` at the end of each element that holds only text, and `closed` at the end of every other one.
// `path` joins the names of the open elements with slashes: "ListBucketResult/Contents/Key". Errors: damaged,
// those of `leaf` and `closed`.
Status readXml(std::string_view text,
               const std::function<Status(std::string_view path, std::string_view text)>& leaf,
               const std::function<Status(std::string_view path)>& closed = {});

}  // namespace shardscope
