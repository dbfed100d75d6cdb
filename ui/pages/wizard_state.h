// What the pages of the wizard share: the conversion that is being put together, and what it would come to.
// That is worked out off the GUI thread, a moment after each change.
#pragma once

#include <QObject>
#include <QTimer>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/recipe_fit.h"
#include "engine/start_check.h"
#include "survey/as_if.h"
#include "survey/placement_effect.h"
#include "ui/models/conversion_spec.h"
#include "ui/models/name_change_model.h"
#include "ui/models/session.h"

class QWidget;

namespace shardscope::ui {

// One look ahead. Without a plan there is an error.
struct Outlook {
    std::shared_ptr<const Plan> plan;
    std::vector<PlanFile> reads;       // of the source, see Preview
    std::shared_ptr<const AsIf> asIf;  // the target beside the source, who reads what from whom
    std::optional<Error> error;
    PlacementEffect effect;
    QStringList headNotes;  // why attention heads do not fit the mesh, see model_config.h
    std::shared_ptr<const NameChanges> names;
    DestinationPlace place;
    bool sourceHere = true;  // this machine sees the same files under the source's path
};

// What the names of the source say of recipes, and what is beside it.
struct Proposal {
    std::vector<RecipeFit> fits;
    RecipeChoice huggingFace;
    QString model;   // the directory of its config.json; empty = none was found
    QString assets;  // the same, as the conversion has to be told; empty = it finds it
};

// The pages of the wizard, in their order.
enum class WizardPageId : int { none = -1, intent, source, target, placement, names, where, run, plan };

// Why a conversion cannot be started, as a sentence, and the page where that is mended. Empty when it can.
struct Obstacle {
    QString text;
    WizardPageId mend = WizardPageId::none;
    bool any() const { return !text.isEmpty(); }
};

class WizardState : public QObject {
    Q_OBJECT
  public:
    explicit WizardState(Session& session, QObject* parent = nullptr);
    ~WizardState() override;

    Session& session() const { return session_; }
    const ConversionSpec& spec() const { return spec_; }
    // From outside: pages show all of it anew. The source stays the session's.
    void setSpec(ConversionSpec spec);
    // By a page, which shows the change already.
    void edit(const std::function<void(ConversionSpec&)>& change);

    // Of the present conversion; null while it is being worked out for the first time.
    const std::shared_ptr<const Outlook>& outlook() const { return outlook_; }
    bool working() const { return timer_.isActive() || ticket_.running(); }
    Obstacle obstacle() const;
    // Of the source; null while names are being matched.
    const std::shared_ptr<const Proposal>& proposal() const { return proposal_; }

    // The present conversion, filled for what a person wants of it; the destination follows the format.
    ConversionSpec forInference() const;
    // Cut as the source is cut, over this mesh.
    ConversionSpec overMesh(const Mesh& mesh) const;
    std::optional<Mesh> meshOfSource() const;  // of more than one rank
    // How the source is cut, as rules for another mesh.
    QStringList rulesOfSource(const Mesh& from, const Mesh& to) const;
    // What is wrong with what a field of a page holds, as a sentence; empty = nothing. While something is,
    // the conversion cannot be started.
    void setProblem(const QWidget* field, const QString& problem);
    QString problem(const QWidget* field) const;

    // The target's format; null when it is not known.
    const Format* target() const;
    // Whether a conversion without mesh keeps the placement of the source.
    bool keepsPlacement() const;
    // A destination beside the source that fits the target.
    QString proposedDestination() const;

  signals:
    void specReplaced();
    void specChanged();     // by edit()
    void outlookChanged();  // also when working() changed
    void proposalChanged();

  private:
    void takeSource();
    void schedule();
    void look();
    void propose();
    Obstacle obstacleOfError(const Error& error) const;
    Obstacle obstacleOfPlace() const;
    void forgetProposedDestination(ConversionSpec& spec) const;

    Session& session_;
    ConversionSpec spec_;
    std::shared_ptr<const Outlook> outlook_;
    std::vector<std::pair<const QWidget*, QString>> problems_;  // the oldest first
    std::shared_ptr<const Proposal> proposal_;
    CheckpointPtr proposedFor_;
    QTimer timer_;
    Ticket ticket_, proposing_;
};

}  // namespace shardscope::ui
