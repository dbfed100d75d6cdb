#include "support/gui_test.h"

using namespace shardscope;
using namespace shardscope::ui;

class ModelsTest : public QObject {
    Q_OBJECT
};

SHARDSCOPE_GUI_TEST_MAIN(ModelsTest)
#include "models_test.moc"
