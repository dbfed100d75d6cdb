// A pull parser for the XML that object stores answer with: elements, text, the five named entities and
// numeric ones. Attributes, comments, processing instructions and namespaces are skipped; a DOCTYPE is
// refused. The text is untrusted; nothing is allocated but what is returned.
// https://www.w3.org/TR/xml/
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace shardscope {

class XmlReader {
  public:
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
    std::string closing_;            // of an element without content, which ends at once
    std::vector<std::string> open_;  // elements around here
};

// Calls `leaf` for every element that holds text only, with the names of those around it and its own, joined
// by slashes ("ListBucketResult/Contents/Key"), and with its text; and `closed` for every other element when
// it ends. Errors: damaged, those of `leaf` and `closed`.
Status readXml(std::string_view text,
               const std::function<Status(std::string_view path, std::string_view text)>& leaf,
               const std::function<Status(std::string_view path)>& closed = {});

}  // namespace shardscope
