// The pages of the conversion wizard. Each shows a part of the spec, edits it, and says what that comes to.
#pragma once

#include <QPushButton>

#include "ui/models/host_report.h"
#include "ui/pages/recipe_edit.h"
#include "ui/pages/wizard_parts.h"
#include "ui/pages/wizard_state.h"

class QButtonGroup;
class QCheckBox;
class QComboBox;
class QGridLayout;
class QRadioButton;
class QSpinBox;
class QTabWidget;
class QTreeView;
class QTreeWidget;
class QVBoxLayout;

namespace shardscope {
struct ShardPreset;
}
namespace shardscope::ui {

class JobStore;
class PictureView;
class FormatOptions;
class PlanModel;

class WizardPage : public QWidget {
    Q_OBJECT
  public:
    WizardPage(WizardState& state, const QString& title, const QString& purpose);
    const QString& title() const { return title_; }
    // Whether something on this page needs attention; marks the list of steps.
    virtual bool attention() const { return false; }

  protected:
    virtual void showSpec() = 0;
    virtual void showOutlook() {}
    // To be called at the end of a page's constructor.
    void follow();
    // Fields that show a member of the spec and edit it, before showSpec() shows the rest.
    void bind(QCheckBox* box, bool ConversionSpec::*field);
    void bind(PathEdit* edit, QString ConversionSpec::*field);
    void bind(QComboBox* box, QString ConversionSpec::*field);  // what its items hold; the first, for others
    template <class Enum>
    void bind(QComboBox* box, Enum ConversionSpec::*field) {
        bindData(
            box, [field](const ConversionSpec& spec) { return QVariant(static_cast<int>(spec.*field)); },
            [field](ConversionSpec& spec, const QVariant& value) {
                spec.*field = static_cast<Enum>(value.toInt());
            });
    }
    // A line that holds a size in bytes; an `optional` one may be empty, which is 0. Text that is not a size
    // is a problem of the conversion until the user mends it, and stays.
    void bindSize(QLineEdit* edit, uint64_t ConversionSpec::*size, bool optional);

    WizardState& state_;
    QVBoxLayout* layout_;

  private:
    void bindData(QComboBox* box, const std::function<QVariant(const ConversionSpec&)>& get,
                  const std::function<void(ConversionSpec&, const QVariant&)>& set);
    void showAll();

    QString title_;
    std::vector<std::function<void(const ConversionSpec&)>> shows_;
};

// A button as large as what it says: a title with its mnemonic, and sentences under it.
class IntentCard : public QPushButton {
    Q_OBJECT
  public:
    IntentCard(const QString& title, QWidget* parent);
    void setDescription(const QString& text);
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override { return sizeHint(); }
    bool hasHeightForWidth() const override { return true; }
    int heightForWidth(int width) const override;

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    QLabel* description_;
};

// What the user wants, in the words of the job: each choice fills the pages.
class IntentStep : public WizardPage {
    Q_OBJECT
  public:
    explicit IntentStep(WizardState& state);

  signals:
    void chosen(const ConversionSpec& spec, WizardPageId page);

  protected:
    void showSpec() override;
    void showEvent(QShowEvent* event) override;
    bool eventFilter(QObject* watched, QEvent* event) override;

  private:
    IntentCard* addCard(const QString& title, const QString& object);
    void showInference();
    void showRanks();
    void chooseInference();
    void chooseRanks();
    IntentCard *inference_, *ranks_, *framework_, *some_;
    QWidget* meshRow_;
    QLineEdit* mesh_;
    QLabel *rankCount_, *damage_;
    bool meshTyped_ = false;
    bool waits_ = false;  // for the names to be matched
};

// What to do with a damaged source, where there is a choice. Hidden where there is none.
class DamageChoice : public QWidget {
    Q_OBJECT
  public:
    // `prefix` tells the ones of several pages apart, for tests.
    DamageChoice(WizardState& state, const QString& prefix, QWidget* parent);

  private:
    void show();
    WizardState& state_;
    QCheckBox* skip_;
    QLabel *skipNote_, *gapNote_, *gapLabel_;
    QComboBox* fill_;
};

class SourceStep : public WizardPage {
    Q_OBJECT
  public:
    explicit SourceStep(WizardState& state);
    bool attention() const override;

  protected:
    void showSpec() override;
    void showOutlook() override { showSpec(); }

  private:
    static QString factsText(const Session& session);
    static QString healthText(const Session& session);
    static QString validationText(const Session& session);

    QLabel *facts_, *health_, *validation_;
    QPushButton* validate_;
    QWidget* reading_;  // heading, fields and button; for formats that take options
    FormatOptions* formatOptions_;
    QPushButton* readAgain_;
    QLabel* readingProblem_;
};

class TargetStep : public WizardPage {
    Q_OBJECT
  public:
    explicit TargetStep(WizardState& state);
    bool attention() const override;

  protected:
    void showSpec() override;
    void showOutlook() override;

  private:
    void showFormat();
    bool lacksRoom() const;
    QComboBox *format_, *variant_;
    QLabel *holds_, *space_;
    PathEdit* destination_;
    QCheckBox* overwrite_;  // also among the options of the run
    QLineEdit* size_;
    QString proposed_;  // the destination as it was proposed; kept in step with the format until the user
                        // writes one
};

class PlacementStep : public WizardPage {
    Q_OBJECT
  public:
    enum class Mode { keep, whole, mesh, like };
    explicit PlacementStep(WizardState& state);
    bool attention() const override;

  protected:
    void showSpec() override;
    void showOutlook() override;

  private:
    Mode mode() const;
    void buildMesh(QVBoxLayout* into);
    void choose(Mode mode);
    void preset(const ShardPreset& preset);
    void presetOfSource();
    void takeRules();
    void fillRankTable();
    Mode chosen_ = Mode::keep;  // by the user; counts where the spec does not tell
    QButtonGroup* modes_;
    QWidget *presets_, *meshPart_, *likePart_;
    QPushButton* asSource_;
    QLineEdit* mesh_;
    QLabel* ranks_;
    RuleTable *shard_, *stage_;
    PathEdit* like_;
    QLabel* legality_;
    PictureView* flow_;
    QLabel* headline_;
    QTreeWidget* rankTable_;
    QCheckBox* asTable_;
};

class NamesStep : public WizardPage {
    Q_OBJECT
  public:
    explicit NamesStep(WizardState& state);

  protected:
    void showSpec() override;
    void showOutlook() override;

  private:
    QWidget* makeSelection(QWidget* parent);
    QWidget* makeRecipe(QWidget* parent);
    QWidget* makeAverage(QWidget* parent);
    QWidget* makeChanges(QWidget* parent);
    void showFitting();
    QLabel* fitting_;

    RuleTable *select_, *exclude_, *rename_, *cast_, *average_;
    QCheckBox* onlyChanged_;
    QComboBox* weights_;
    RecipeEdit* recipe_;
    QLabel* counts_;
    QTreeView* table_;
    NameChangeModel changes_;
};

// Who works, and whether the hosts are fit for it: looked at when the user asks, one row for each.
class WhereStep : public WizardPage {
    Q_OBJECT
  public:
    explicit WhereStep(WizardState& state);
    ~WhereStep() override;
    bool attention() const override;

  protected:
    void showSpec() override;
    void showOutlook() override { sync(); }

  private:
    // One way to work. What it needs to know stands in `field`; `words` starts what is said of it in
    // ConversionSpec::where.
    struct Kind {
        QString words, note;
        QWidget* field = nullptr;
        bool there = false;  // by the user, on the host of the checkpoint
        bool ranks = false;  // `mode_` is shown, too
    };
    void add(const QString& label, Kind kind);
    size_t kindOfSpec() const;
    void take();
    QLayout* buildCheck();
    void check();
    void ask(const QString& name, const HostSpec& where);
    void show(const HostReport& report);
    void forget();
    void sync();

    std::vector<Kind> kinds_;
    QComboBox* where_;
    QSpinBox* processes_;  // or ranks
    QComboBox* mode_;      // of ranks
    QLineEdit *hosts_, *slurm_;
    QLabel *note_, *checkNote_;
    QPushButton *check_, *cancel_;
    QTreeWidget* reports_;
    std::vector<Ticket> tickets_;
    QStringList asked_;  // what the spec said when the hosts were asked
};

class RunStep : public WizardPage {
    Q_OBJECT
  public:
    explicit RunStep(WizardState& state);
    bool attention() const override;

  protected:
    void showSpec() override;
    void showOutlook() override;

  private:
    QLineEdit* memory_;
    QLabel *memoryNote_, *existing_;
    QSpinBox* threads_;
    QCheckBox* unguarded_;  // for a bucket alone
};

class PlanStep : public WizardPage {
    Q_OBJECT
  public:
    explicit PlanStep(WizardState& state);
    bool attention() const override;

  protected:
    void showSpec() override;
    void showOutlook() override;

  private:
    void showVerdict();
    QLabel *summary_, *verdict_;
    QWidget* modelRow_;
    QTreeView* tree_;
    PlanModel* plan_;
};

}  // namespace shardscope::ui
