// Which recipe a checkpoint goes through: one that is built in, or a file, with values of its parameters.
#pragma once

#include <QStringList>
#include <QWidget>

class QLineEdit;

namespace shardscope::ui {

class PathEdit;

class RecipeEdit : public QWidget {
    Q_OBJECT
  public:
    explicit RecipeEdit(QWidget* parent);

    QString map() const;      // a name or a path; empty = no recipe
    QStringList set() const;  // "NAME=VALUE"
    void setRecipe(const QString& map, const QStringList& set);

  signals:
    void edited();

  private:
    PathEdit* map_;
    QLineEdit* set_;
};

}  // namespace shardscope::ui
