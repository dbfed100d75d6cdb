// A checkpoint as if it were on another mesh: the target beside the source, and who reads what from whom.
// Window, page and command line show the same. Nothing is written.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "survey/facts.h"
#include "survey/flow_picture.h"
#include "survey/mesh_picture.h"

namespace shardscope {

class AsIf {
  public:
    // What a target comes to; all of it may be called from any thread. `facts` of the source may be null: it
    // is not drawn then. Errors: cancelled.
    static Result<std::shared_ptr<const AsIf>> of(const Catalog& source, std::shared_ptr<const Facts> facts,
                                                  std::shared_ptr<const Catalog> target, const Flow& flow,
                                                  const Plan& plan, const StopToken& stop);

    const MeshPicture* before() const { return before_.get(); }  // null = one rank, or no facts
    const MeshPicture* after() const { return after_.get(); }    // null = one rank
    const FlowPicture& flow() const { return flow_; }
    // Who reads how much, then how much the fullest rank holds before and after.
    std::string headline() const;
    // What to know before doing it: what cuts nothing, sizes that do not divide, what is in the way.
    const std::vector<std::string>& notes() const { return notes_; }

    // Source and target side by side, below them the flow; where there is little room the flow alone. Each
    // item has the others that read from it, or that it reads from.
    static DrawnPicture draw(const std::shared_ptr<const AsIf>& what, double width, double height, bool dark);

  private:
    AsIf(const Catalog& source, const Flow& flow, uint32_t ranks) : flow_(source, flow, ranks) {}
    void note(const Catalog& target, const Plan& plan);

    std::shared_ptr<const Catalog> target_;
    std::shared_ptr<const MeshPicture> before_, after_;
    FlowPicture flow_;
    std::vector<std::string> notes_;
};

// What is asked for to have a checkpoint on another mesh, as `reshard --mesh` does: in its own format where
// that is written, else in DCP. `source` is the mesh that it has.
struct OtherMesh {
    std::string format;       // empty = its own
    bool likeSource = false;  // the rules are those of its own placement, and have to be asked for
};
OtherMesh otherMeshOf(const Checkpoint& source);

// Plans that. Errors: usage (not a mesh), those of prepareConversion().
Result<std::shared_ptr<const AsIf>> asIfOn(const Checkpoint& source, std::shared_ptr<const Facts> facts,
                                           const std::string& mesh, const StopToken& stop);

}  // namespace shardscope
