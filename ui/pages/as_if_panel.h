// The checkpoint as if it were on another mesh (survey/as_if.h). A line for the mesh stands under the picture
// of the mesh. The answer is below, once a mesh was typed. Nothing is written.
#pragma once

#include <QTimer>

#include "survey/as_if.h"
#include "ui/models/session.h"
#include "ui/models/text_table_model.h"
#include "ui/widgets/card.h"

class QLineEdit;
class QPushButton;

namespace shardscope::ui {

class PictureView;

class AsIfPanel : public Panel {
    Q_OBJECT
  public:
    // The line goes to the end of `above`.
    AsIfPanel(Session& session, Panel& above, QWidget* parent);
    ~AsIfPanel() override;

  signals:
    void answered();  // what was asked with Enter, and is shown
    void reshardRequested(const QString& mesh);

  private:
    void takeSource();
    void ask();
    void show(const Result<std::shared_ptr<const AsIf>>& answer);
    std::vector<TextColumn> columns() const;

    Session& session_;
    std::shared_ptr<const Checkpoint> source_;
    Ticket ticket_;
    QTimer timer_;  // from the last letter to the question
    std::shared_ptr<const AsIf> asIf_;
    bool entered_ = false;
    QLineEdit* mesh_;
    QLabel *problem_, *headline_, *notes_;
    PictureView* picture_;
    TextTableModel* rows_;
};

}  // namespace shardscope::ui
