// Which recipe a checkpoint goes through: one that is built in, or a file, with values of its parameters.
#pragma once

#include <QStringList>
#include <QWidget>

class QLineEdit;
class QMenu;

namespace shardscope {
struct BuiltinRecipe;
}

namespace shardscope::ui {

class PathEdit;

class RecipeEdit : public QWidget {
    Q_OBJECT
  public:
    explicit RecipeEdit(QWidget* parent);

    QString map() const;      // a name or a path; empty = no recipe
    QStringList set() const;  // "NAME=VALUE"
    void setRecipe(const QString& map, const QStringList& set);
    // These come first among the built-in ones.
    void offerFirst(const QStringList& fitting);

  signals:
    void edited();

  private:
    void addToMenu(const BuiltinRecipe& recipe);
    PathEdit* map_;
    QLineEdit* set_;
    QMenu* menu_;
};

}  // namespace shardscope::ui
