// One box for tensors, modules, objects, ranks, files and actions (Ctrl+K). A prefix narrows it: "t "
// tensors, "m " modules, "o " objects, "r " ranks, "f " files, ">" actions. Letters need not be neighbors:
// "l3w1" finds layers.3.mlp.w1.
#pragma once

#include <QFrame>
#include <functional>
#include <string_view>
#include <vector>

#include "ui/models/session.h"

class QAction;
class QLabel;
class QLineEdit;
class QListWidget;

namespace shardscope::ui {

// How well `pattern` (lower case) fits `text` as letters in this order; negative when it does not.
// Neighbors, word beginnings and short texts count more. `matched` gets where the letters are.
int fuzzyScore(std::string_view pattern, std::string_view text, std::vector<size_t>* matched = nullptr);

class Locator : public QFrame {
    Q_OBJECT
  public:
    // `actions` is asked each time; disabled ones are left out.
    Locator(Session& session, std::function<QList<QAction*>()> actions, QWidget* window);
    ~Locator() override;

    // Shows it over the top of the window, with `prefix` typed in.
    void open(const QString& prefix = {});
    QLineEdit& line() { return *line_; }
    QListWidget& list() { return *list_; }

  protected:
    bool eventFilter(QObject* watched, QEvent* event) override;

  private:
    struct Hit {
        enum class Kind { tensor, module, object, rank, file, action } kind = Kind::tensor;
        uint32_t id = 0;
        int score = 0;
        QString text;
    };
    static bool better(const Hit& a, const Hit& b);
    static Result<std::vector<Hit>> find(const Catalog& catalog, const Facts* facts, const ModuleTree* tree,
                                         const std::string& pattern, const QString& kinds,
                                         std::vector<Hit> hits, const StopToken& stop);
    std::vector<Hit> findActions(const std::string& pattern, bool alone);
    void search();
    void show(const std::vector<Hit>& hits);
    void run(int row);
    QString factsOf(const Hit& hit) const;
    Health healthOf(const Hit& hit) const;

    Session& session_;
    std::function<QList<QAction*>()> actions_;
    QLineEdit* line_;
    QListWidget* list_;
    QLabel* hint_;
    Ticket ticket_;
    std::vector<Hit> hits_;
    QString pattern_;  // that they fit, in lower case
    QList<QAction*> shownActions_;
};

}  // namespace shardscope::ui
