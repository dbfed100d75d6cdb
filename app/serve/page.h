// What `shardscope serve` answers: a checkpoint or the directory of a run, and jobs; where it is allowed to,
// it validates, plans, starts, cancels and resumes.
#pragma once

#include <memory>
#include <string>

#include "serve/page_checkpoint.h"

namespace shardscope::serve {

struct PageOptions {
    std::string path;  // empty = jobs alone
    bool jobs = false;
    bool allowJobs = false;
    ValidateLevel level = ValidateLevel::files;
};

class Page {
  public:
    // `access` outlives the page. Errors: those of opening.
    static Result<std::unique_ptr<Page>> open(const Access& access, const PageOptions& options);
    ~Page();
    // Refers to this page.
    PageContent content();

  private:
    class Impl;
    explicit Page(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace shardscope::serve
