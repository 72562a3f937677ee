// SPDX-License-Identifier: Apache-2.0
//! Images of Pillow as values of steps: what they consist of is not packed into bytes and unpacked again.

use serde_json::{Value, json};

use super::functions::is_root;
use super::requirements::reaches;
use super::{Node, home};

/// `is_shared`: that an image in this process lies in memory that was not made by Pillow.
const MAIN: &str = r#"
import __main__
from PIL import Image
from sinew import function, isolated, workflow

def picture(mode):
    image = Image.linear_gradient("L").resize((640, 480)).convert(mode)
    image.info["mode"] = mode
    return image

@function
def drawn(mode):
    return picture(mode)

@function
def seen(image):
    is_shared = len(__main__.capsules().held) > 0
    return {"is_same": image.tobytes() == picture(image.mode).tobytes(), "info": image.info, "is_shared": is_shared}

@function
def changed(image):
    image.putpixel((3, 4), image.getpixel((600, 400)))
    return image

@workflow
def handler(event):
    image = drawn(event["mode"])
    return [seen(image), seen(changed(image)), seen(isolated(image)), seen(image), image.result().size]
"#;

#[test]
fn images_are_handed_over_as_the_memory_that_they_have() {
    if !is_root() || !reaches("python3", &["-m", "pip", "index", "versions", "pillow"]) {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = node.python("pictures", "memory = \"192MiB\"\nworkflow = true\n", MAIN);
    std::fs::write(folder.join("requirements.txt"), "pillow==13.0.0\n").unwrap();
    node.install(&folder).unwrap();
    // Pillow has palettes for itself.
    for (mode, is_shared) in [("RGB", true), ("L", true), ("F", true), ("P", false)] {
        let seen =
            |is_same: bool| json!({"is_same": is_same, "info": {"mode": mode}, "is_shared": is_shared});
        let told = node.ok(&["invoke", "pictures", "-d", &json!({"mode": mode}).to_string()]);
        let expected = json!([seen(true), seen(false), seen(true), seen(true), [640, 480]]);
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), expected, "{mode}");
    }
}
