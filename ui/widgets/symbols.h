// The icons of the window: line drawings on a grid of 24, as SVG in the color of the text. They are sharp at
// every scale and right in both themes. They are the project's own.
#pragma once

#include <QIcon>

namespace shardscope::ui {

enum class Symbol { back, forward, open, validate, convert, compare, search };

QIcon symbolIcon(Symbol symbol);

}  // namespace shardscope::ui
