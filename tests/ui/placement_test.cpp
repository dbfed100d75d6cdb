#include "support/gui_test.h"

using namespace shardscope;
using namespace shardscope::ui;

class PlacementTest : public QObject {
    Q_OBJECT
};

SHARDSCOPE_GUI_TEST_MAIN(PlacementTest)
#include "placement_test.moc"
