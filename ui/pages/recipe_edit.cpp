#include "ui/pages/recipe_edit.h"

#include <QBoxLayout>
#include <QLineEdit>
#include <QMenu>
#include <QPushButton>
#include <algorithm>

#include "engine/recipe.h"
#include "ui/models/texts.h"
#include "ui/pages/wizard_parts.h"
#include "ui/widgets/building.h"

namespace shardscope::ui {

RecipeEdit::RecipeEdit(QWidget* parent) : QWidget(parent) {
    map_ = new PathEdit(PathEdit::Kind::openFile, tr("Recipe"), tr("Recipes (*.json)"), this);
    map_->edit()->setPlaceholderText(tr("Name of a built-in recipe, or a file"));
    auto* builtIn = withName(new QPushButton(tr("Built in"), this), tr("Choose a built-in recipe"));
    builtIn->setAutoDefault(false);
    menu_ = new QMenu(builtIn);
    menu_->setToolTipsVisible(true);
    offerFirst({});
    builtIn->setMenu(menu_);
    set_ = new QLineEdit(this);
    set_->setClearButtonEnabled(true);
    set_->setAccessibleName(tr("Parameters of the recipe"));
    set_->setPlaceholderText(tr("Parameters that the checkpoint does not tell: NAME=VALUE NAME=VALUE"));
    auto* layout = layoutOf<QVBoxLayout>(this, {0, 0, 0, 0});
    auto* line = new QHBoxLayout;
    line->addWidget(map_, 1);
    line->addWidget(builtIn);
    layout->addLayout(line);
    layout->addWidget(set_);
    setFocusProxy(map_);
    connect(map_, &PathEdit::edited, this, &RecipeEdit::edited);
    connect(set_, &QLineEdit::textEdited, this, &RecipeEdit::edited);
    connect(this, &RecipeEdit::edited, this, [this] { set_->setEnabled(!map().isEmpty()); });
    set_->setEnabled(false);
}

void RecipeEdit::addToMenu(const BuiltinRecipe& recipe) {
    const QString name = toQString(recipe.name);
    QAction* action = menu_->addAction(name, this, [this, name] {
        map_->setPath(name);
        emit edited();
    });
    action->setToolTip(toQString(recipeDescription(recipe)).toHtmlEscaped());
}

void RecipeEdit::offerFirst(const QStringList& fitting) {
    menu_->clear();
    const auto& recipes = builtinRecipes();
    for (const QString& name : fitting) {
        const auto recipe = std::ranges::find(recipes, name.toStdString(), &BuiltinRecipe::name);
        if (recipe != recipes.end()) addToMenu(*recipe);
    }
    if (!menu_->isEmpty()) {
        menu_->insertSection(menu_->actions().front(), tr("These fit the names"));
        menu_->addSection(tr("Others"));
    }
    for (const BuiltinRecipe& recipe : recipes) {
        if (!fitting.contains(toQString(recipe.name))) addToMenu(recipe);
    }
}

QString RecipeEdit::map() const {
    return map_->path();
}

QStringList RecipeEdit::set() const {
    return map().isEmpty() ? QStringList() : set_->text().split(' ', Qt::SkipEmptyParts);
}

void RecipeEdit::setRecipe(const QString& map, const QStringList& set) {
    map_->setPath(map);
    if (set != this->set()) set_->setText(set.join(' '));
    set_->setEnabled(!map.isEmpty());
}

}  // namespace shardscope::ui
