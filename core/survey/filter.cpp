#include "survey/filter.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <unordered_map>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/regular_expression.h"
#include "base/units.h"
#include "plan/plan.h"

namespace shardscope {

namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

// Needle in lower case.
bool containsFolded(std::string_view text, std::string_view needle) {
    return std::search(text.begin(), text.end(), needle.begin(), needle.end(), [](char a, char b) {
               return std::tolower(static_cast<unsigned char>(a)) == b;
           }) != text.end();
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    while (true) {
        const size_t at = text.find(separator);
        if (at != 0 && !text.empty()) parts.emplace_back(text.substr(0, at));
        if (at == std::string_view::npos) return parts;
        text.remove_prefix(at + 1);
    }
}

Error notUnderstood(std::string_view token, std::string_view why) {
    return makeError(ErrorCode::usage, fmt::format("'{}': {}", token, why));
}

}  // namespace

// What each key means; `token` is the whole of it, for errors.
struct Filter::Keys {
    static Result<Term> size(const std::string& token, const std::string& value, bool more) {
        const auto bytes = parseBytes(value);
        if (!bytes) return notUnderstood(token, "a size such as 1GiB is expected");
        return Term{.test = [more, bytes = *bytes](const Scope& s, TensorId t) {
            return more ? s.catalog.bytes(t) > bytes : s.catalog.bytes(t) < bytes;
        }};
    }

    static Term word(const std::string& token) {
        return Term{.cost = 1, .test = [word = lower(token)](const Scope& s, TensorId t) {
                        return containsFolded(s.catalog.name(t), word);
                    }};
    }

    static Result<Term> name(const std::string& token, const std::string& value) {
        if (value[0] == '~') {
            auto expression = RegularExpression::parse(value.substr(1));
            if (!expression.ok()) return notUnderstood(token, expression.error().message);
            return Term{.cost = 4,
                        .test = [expression = std::move(expression).value()](const Scope& s, TensorId t) {
                            return expression.matchesPart(s.catalog.name(t));
                        }};
        }
        SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(value));
        return Term{.cost = 2, .test = [pattern = std::move(pattern)](const Scope& s, TensorId t) {
                        return pattern.matches(s.catalog.name(t));
                    }};
    }

    static Result<Term> dtype(const std::string& token, const std::string& value) {
        std::vector<DType> dtypes;
        for (const std::string& name : split(value, ',')) {
            const auto dtype = dtypeFromName(lower(name));
            if (!dtype) return notUnderstood(token, fmt::format("'{}' is not a dtype", name));
            dtypes.push_back(*dtype);
        }
        return Term{.test = [dtypes](const Scope& s, TensorId t) {
            return std::find(dtypes.begin(), dtypes.end(), s.catalog.dtype(t)) != dtypes.end();
        }};
    }

    static Result<Term> rank(const std::string& token, const std::string& value) {
        std::vector<std::pair<uint32_t, uint32_t>> ranges;
        for (const std::string& part : split(value, ',')) {
            const size_t dash = part.find('-');
            const auto first = parseNumber<uint32_t>(std::string_view(part).substr(0, dash));
            const auto last = dash == std::string::npos
                                  ? first
                                  : parseNumber<uint32_t>(std::string_view(part).substr(dash + 1));
            if (!first || !last) return notUnderstood(token, "a rank or a range such as 0-7 is expected");
            ranges.emplace_back(*first, *last);
        }
        return Term{.cost = 3, .test = [ranges](const Scope& s, TensorId t) {
                        for (ChunkId c = s.catalog.firstChunk(t); c < s.catalog.endChunk(t); ++c) {
                            const uint32_t rank = s.catalog.chunk(t, c).rank;
                            for (const auto& [first, last] : ranges) {
                                if (rank != kNone && rank >= first && rank <= last) return true;
                            }
                        }
                        return false;
                    }};
    }

    static Result<Term> file(const std::string&, const std::string& value) {
        const bool glob = value.find_first_of("*?") != std::string::npos;
        SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(glob ? value : "*" + value + "*"));
        // Files are few and chunks many: each file's answer is kept.
        auto known = std::make_shared<std::unordered_map<FileId, bool>>();
        return Term{.cost = 3, .test = [pattern = std::move(pattern), known](const Scope& s, TensorId t) {
                        for (ChunkId c = s.catalog.firstChunk(t); c < s.catalog.endChunk(t); ++c) {
                            const FileId file = s.catalog.chunk(t, c).file;
                            if (file == kNone) continue;
                            auto it = known->find(file);
                            if (it == known->end())
                                it =
                                    known->emplace(file, pattern.matches(s.catalog.files()[file].path)).first;
                            if (it->second) return true;
                        }
                        return false;
                    }};
    }

    static Result<Term> status(const std::string& token, const std::string& value) {
        constexpr std::array<std::string_view, 7> names{"ok",      "unread",  "nan", "differs",
                                                        "overlap", "missing", "gap"};
        uint32_t wanted = 0;
        for (const std::string& part : split(lower(value), ',')) {
            const auto found = std::ranges::find(names, part);
            if (part == "bad")
                wanted |= ~1U;
            else if (part == "inf")
                wanted |= 1U << static_cast<int>(Health::nonFinite);
            else if (found == names.end())
                return notUnderstood(
                    token, "one of ok, unread, nan, differs, overlap, missing, gap or bad is expected");
            else
                wanted |= 1U << (found - names.begin());
        }
        return Term{.test = [wanted](const Scope& s, TensorId t) {
            const Health health = s.facts ? s.facts->tensorHealth[t] : Health::ok;
            return (wanted >> static_cast<int>(health) & 1) != 0;
        }};
    }

    static Result<Term> role(const std::string& token, const std::string& value) {
        const std::string role = lower(value);
        if (role != "parameter" && role != "buffer" && role != "optimizer" && role != "other")
            return notUnderstood(token, "one of parameter, buffer, optimizer or other is expected");
        return Term{
            .test = [role](const Scope& s, TensorId t) { return roleName(s.catalog.role(t)) == role; }};
    }
};

Result<Filter::Term> Filter::parseToken(const std::string& full) {
    const bool negated = full.size() > 1 && full[0] == '-';
    const std::string token = full.substr(negated ? 1 : 0);
    const size_t at = token.find_first_of(":<>");
    const std::string key = at == std::string::npos ? std::string() : lower(token.substr(0, at));
    const std::string value = at == std::string::npos ? std::string() : token.substr(at + 1);
    const auto term = [&]() -> Result<Term> {
        if (key == "size" && token[at] != ':') return Keys::size(full, value, token[at] == '>');
        using Parse = Result<Term> (*)(const std::string&, const std::string&);
        constexpr std::pair<std::string_view, Parse> keys[] = {
            {"name", Keys::name}, {"dtype", Keys::dtype},   {"rank", Keys::rank},
            {"file", Keys::file}, {"status", Keys::status}, {"role", Keys::role}};
        const auto* known = std::ranges::find(keys, key, &std::pair<std::string_view, Parse>::first);
        // A plain word. Names may hold colons, so an unknown key is part of one.
        if (at == std::string::npos || token[at] != ':' || known == std::end(keys)) return Keys::word(token);
        if (value.empty()) return notUnderstood(full, "something is expected after the colon");
        return known->second(full, value);
    };
    SHARDSCOPE_ASSIGN(Term parsed, term());
    parsed.negated = negated;
    return parsed;
}

Result<Filter> Filter::parse(std::string_view text) {
    Filter filter;
    for (const std::string& token : split(text, ' ')) {
        SHARDSCOPE_ASSIGN(Term term, parseToken(token));
        filter.terms_.push_back(std::move(term));
    }
    std::stable_sort(filter.terms_.begin(), filter.terms_.end(),
                     [](const Term& a, const Term& b) { return a.cost < b.cost; });
    return filter;
}

std::vector<TensorId> Filter::apply(const Catalog& catalog, const Facts* facts, const StopToken& stop) const {
    std::vector<TensorId> passed;
    const Scope scope{catalog, facts};
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (t % 4096 == 0 && stop.stopRequested()) break;
        bool pass = true;
        for (const Term& term : terms_) {
            if (term.test(scope, t) == term.negated) {
                pass = false;
                break;
            }
        }
        if (pass) passed.push_back(t);
    }
    return passed;
}

}  // namespace shardscope
