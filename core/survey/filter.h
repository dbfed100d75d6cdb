// The filter line above the tree: words and tokens that every tensor must meet.
//
//   attn q                 names that hold both words
//   name:GLOB  name:~RE    glob over the full name, or a regular expression found in it
//   dtype:bf16,fp32        one of these
//   rank:3  rank:0-7       a chunk of it is on one of these ranks
//   file:GLOB              a chunk of it is in such a file
//   status:gap             one of ok, unread, nan, differs, overlap, missing, gap, bad (anything
//                          but ok)
//   size>1GiB size<4KB     bytes of the whole tensor
//   role:optimizer         parameter, buffer, optimizer or other
//   -TOKEN                 the opposite
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "model/catalog.h"
#include "survey/facts.h"

namespace shardscope {

class Filter {
  public:
    Filter() = default;
    // Errors: usage, with the token that is not understood.
    static Result<Filter> parse(std::string_view text);

    bool empty() const { return terms_.empty(); }
    // Tensors that pass, ascending. `facts` may be null: then nothing is known to be wrong.
    std::vector<TensorId> apply(const Catalog& catalog, const Facts* facts, const StopToken& stop = {}) const;

  private:
    struct Scope {
        const Catalog& catalog;
        const Facts* facts;
    };
    using Test = std::function<bool(const Scope&, TensorId)>;
    struct Term {
        bool negated = false;
        int cost = 0;  // cheap ones first
        Test test;
    };
    struct Keys;
    static Result<Term> parseToken(const std::string& token);

    std::vector<Term> terms_;
};

}  // namespace shardscope
