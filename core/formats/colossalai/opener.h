// What the openers of both families of layouts share. Private to this format.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/catalog_opener.h"
#include "formats/format.h"
#include "formats/tensor_files.h"

namespace shardscope::colossalai {

class Opener : protected CatalogOpener {
  protected:
    Opener(const Source& source, const OpenOptions& options, std::string_view variant,
           std::string_view writer)
        : CatalogOpener("colossalai", std::string(variant), std::string(writer)),
          source_(source),
          options_(options),
          files_(std::make_unique<TensorFiles>(source, options)) {}

    // The notes of all files that were read; what is so in all of them is said once.
    void noteFiles() {
        std::set<std::string> seen;
        for (uint32_t f = 0; f < files_->size(); ++f) {
            for (const Note& n : (*files_)[f].notes) {
                if (n.severity == Severity::info && !seen.insert(n.rule + n.message).second) continue;
                builder_.addNote(n);
            }
        }
    }
    Result<std::unique_ptr<Reader>> finish() {
        return makePartReader(source_, std::move(builder_).finish(), std::move(files_), std::move(parts_));
    }

    const Source& source_;
    const OpenOptions& options_;
    std::unique_ptr<TensorFiles> files_;
    StoredParts parts_;
};

}  // namespace shardscope::colossalai
