// Puts a conversion together, step by step, with its plan always in view, and starts it as a job. A window of
// its own that blocks nothing.
#pragma once

#include <QDialog>

#include "ui/models/conversion_spec.h"
#include "ui/models/job_store.h"
#include "ui/models/session.h"

class QLabel;
class QListWidget;
class QPushButton;
class QStackedWidget;

namespace shardscope::ui {

class WizardPage;
class WizardState;
enum class WizardPageId : int;

class ConvertWizard : public QDialog {
    Q_OBJECT
  public:
    // Both must outlive the wizard. The source is what the session has open.
    explicit ConvertWizard(Session& session, JobStore& jobs, QWidget* parent = nullptr);
    ~ConvertWizard() override;

    // An empty destination gets a proposal.
    void setSpec(const ConversionSpec& spec);
    ConversionSpec spec() const;
    // Every tensor along the source's dimensions, over this mesh: on the page Placement.
    void reshardTo(const Mesh& mesh);

    void showPage(int page);
    void showPage(WizardPageId page) { showPage(static_cast<int>(page)); }
    int currentPage() const;

  signals:
    void started(const QString& jobId);

  private:
    void buildSteps();
    QWidget* buildButtons();
    void sync();
    void start();
    void launchEnded(const QString& id, const QString& problem);
    void saveRecipe();
    void loadRecipe();

    JobStore& jobs_;
    WizardState* state_;
    std::vector<WizardPage*> pages_;
    QListWidget* steps_;
    QStackedWidget* stack_;
    QLabel* status_;
    QPushButton *mend_, *back_, *next_, *start_;
    QString starting_;  // job that is being launched
};

}  // namespace shardscope::ui
