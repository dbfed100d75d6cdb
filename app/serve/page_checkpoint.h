// One checkpoint as the browser page shows it: what the verbs say of it, its placement map, and a validation
// that continues beside the answers. All functions may be called from any thread.
#pragma once

#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "answers/documents.h"
#include "answers/validation.h"
#include "serve/page_server.h"

namespace shardscope::serve {

class PageCheckpoint {
  public:
    // Told of each report; null = nobody.
    using OnReport = std::function<void(const ValidationReport&)>;
    PageCheckpoint(const Access& access, Checkpoint checkpoint, ValidateLevel level, OnReport onReport);
    ~PageCheckpoint();
    // What runs ends soon.
    void stop();

    const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }
    const std::string& info() const { return info_; }  // shardscope.info/1
    // shardscope.validate/1, shardscope.validating/1 while it is under way, shardscope.error/1.
    std::string findings() const;
    std::string accepted() const;  // shardscope.accepted/1
    std::string ready() const;     // shardscope.ready/1 of the last report; null without one
    // Errors: usage (no finding has this rule and cause), those of writing.
    Status accept(const std::string& rule, const std::string& cause, const std::string& reason);
    Status withdraw(const std::string& rule, const std::string& cause);
    // Errors: exists (one is under way).
    Status validate(ValidateLevel level);
    void cancelValidation();

    // The parameters are those of docs/serve.md. Errors: usage, cancelled.
    Result<std::string> placement(const PageRequest& request) const;  // shardscope.placement/1
    Result<std::string> tile(const PageRequest& request) const;       // kTile x kTile bytes
    Result<std::string> cell(const PageRequest& request) const;       // shardscope.cell/1
    Result<std::string> mesh() const;                                 // shardscope.mesh/1
    Result<std::string> meshSvg(const PageRequest& request) const;    // errors: notFound (one rank)
    // Errors: usage (not a mesh), those of planning.
    Result<std::string> asIf(const PageRequest& request) const;     // shardscope.as-if/1
    Result<std::string> asIfSvg(const PageRequest& request) const;  // the same as a drawing
    Result<std::string> tensors(const PageRequest& request) const;  // shardscope.ls/1, one page of it
    // Errors: notFound; exists while another reading of values is under way.
    Result<std::string> tensor(const PageRequest& request) const;  // shardscope.show/1
    // A file's chunks by offset, and the objects in it. The name is that of shardscope.ls/1.
    Result<std::string> files(const PageRequest& request) const;    // shardscope.ls/1
    Result<std::string> file(const PageRequest& request) const;     // shardscope.file/1
    Result<std::string> objects(const PageRequest& request) const;  // shardscope.objects/1
    Result<std::string> object(const PageRequest& request) const;   // shardscope.object/1
    Result<std::string> slice(const PageRequest& request) const;    // shardscope.slice/1
    Result<std::string> diff(const Checkpoint& other, const DiffOptions& options) const;  // shardscope.diff/1

    static constexpr uint64_t kTile = 256;

  private:
    using MatrixPtr = std::shared_ptr<const PlacementMatrix>;
    using FactsPtr = std::shared_ptr<const Facts>;
    // One validation, in a thread of its own.
    struct Validation {
        Access access;
        ValidateLevel level = ValidateLevel::files;
        std::unique_ptr<Work> work;
        std::thread thread;
    };
    const Catalog& catalog() const { return checkpoint_->catalog(); }
    void run(Validation& validation);
    Result<MatrixPtr> matrix(const PageRequest& request) const;
    Result<FactsPtr> facts() const;  // with what was found; errors: cancelled
    Result<std::shared_ptr<const AsIf>> asIfOf(const PageRequest& request) const;
    Json fileRow(const Facts& facts, FileId file) const;

    const std::shared_ptr<const Checkpoint> checkpoint_;
    const OnReport onReport_;
    const std::string info_, key_;  // key_: what findings are accepted under
    Access access_;                 // of what is read for an answer
    std::shared_future<FactsPtr> computed_;
    mutable std::mutex mutex_;
    std::unique_ptr<Validation> validation_;  // the last one
    bool validating_ = false, stopped_ = false;
    std::shared_ptr<const ValidationReport> report_;
    std::string failed_;  // why the last validation did not end
    mutable std::string findings_;
    mutable std::vector<Suppression> findingsBut_;  // what was accepted then
    mutable std::string ready_;                     // of report_; empty = not made
    mutable std::vector<Suppression> readyBut_;     // what was accepted then
    FactsPtr found_;                                // with what it found; null = none did
    uint64_t generation_ = 0;                       // of the facts
    mutable std::list<std::pair<std::string, std::shared_future<MatrixPtr>>>
        matrices_;                 // the last used first
    mutable std::string asIfKey_;  // of the one that was asked for last: generation and mesh
    mutable std::shared_ptr<const AsIf> asIf_;
    mutable std::mutex reading_;        // values are read for one answer at a time
    mutable std::mutex slicing_;        // and slices
    const std::vector<uint64_t> used_;  // bytes of each file
};

}  // namespace shardscope::serve
