// Names and dtypes before and after a conversion, as rows: tensors first, in the order of the source, and
// what happens to each. Built off the GUI thread, shown on it.
#pragma once

#include <memory>
#include <vector>

#include "base/stop.h"
#include "model/catalog.h"
#include "plan/plan.h"
#include "ui/models/text_table_model.h"

namespace shardscope::ui {

struct NameChange {
    enum class Fate : uint8_t { kept, changed, excluded, leftOut };
    Fate fate = Fate::kept;
    TensorId before = kNone;  // in the source
    TensorId after = kNone;   // in the target catalog; kNone when it is left out
    std::string why;          // when it does not, or how it is changed besides name and dtype
};
struct NameChanges {
    std::shared_ptr<const Catalog> source, target;
    std::vector<NameChange> rows;
    std::vector<uint32_t> changedRows;  // all but the kept ones
};
Result<std::shared_ptr<const NameChanges>> nameChanges(std::shared_ptr<const Catalog> source,
                                                       std::shared_ptr<const Catalog> target,
                                                       const Plan& plan, const StopToken& stop);

class NameChangeModel : public TextTableModel {
    Q_OBJECT
  public:
    enum Column { before, after, dtypeBefore, dtypeAfter, fate, columnCountValue };

    explicit NameChangeModel(QObject* parent = nullptr);
    void setChanges(std::shared_ptr<const NameChanges> changes);
    void setOnlyChanged(bool on);
    const std::shared_ptr<const NameChanges>& changes() const { return changes_; }

  private:
    const NameChange& change(size_t row) const;
    QString fateText(const NameChange& change) const;

    std::shared_ptr<const NameChanges> changes_;
    bool onlyChanged_ = false;
};

}  // namespace shardscope::ui
