// SPDX-License-Identifier: Apache-2.0
//! Functions called by a client of AWS Lambda that knows nothing of Sinew.

use std::process::Command;

use serde_json::Value;

use super::functions::is_root;
use super::requirements::python_with_aws;
use super::{Node, home};

/// Calls through boto3, and prints what it was answered.
const CLIENT: &str = r#"
import base64, boto3, json, sys
from botocore.config import Config
client = boto3.client("lambda", endpoint_url=sys.argv[1], region_name="eu-west-1", aws_access_key_id="x",
                      aws_secret_access_key="x", config=Config(retries={"max_attempts": 0}))
def call(name, event, **more):
    answer = client.invoke(FunctionName=name, Payload=json.dumps(event), **more)
    return {"status": answer["StatusCode"], "error": answer.get("FunctionError"), "version": answer.get("ExecutedVersion"),
            "log": base64.b64decode(answer.get("LogResult", "")).decode(), "payload": json.loads(answer["Payload"].read() or "null")}
def fails(act):
    try:
        act()
    except client.exceptions.ClientError as error:
        return error.response["Error"]["Code"]
told = {name: {
    "value": call(name, {"do": "value"}, LogType="Tail"),
    "proxy": call(name, {"do": "proxy"}),
    "none": call(name, {"do": "none"}),
    "raise": call(name, {"do": "raise"}),
    "arn": call("arn:aws:lambda:eu-west-1:123456789012:function:" + name, {"do": "value"}, Qualifier="1"),
    "dry": call(name, {}, InvocationType="DryRun"),
} for name in ("snake", "script")}
told["missing"] = fails(lambda: call("nobody", {}))
told["late"] = client.invoke(FunctionName="snake", Payload=json.dumps({"do": "value"}), InvocationType="Event")["StatusCode"]
print(json.dumps(told))
"#;

#[test]
fn boto3_finds_what_it_knows_from_lambda() {
    if !is_root() {
        return;
    }
    let Some(python) = python_with_aws() else { return };
    let home = home();
    let node = Node::start(home.path());
    let snake = node.python(
        "snake",
        "",
        "def handler(event, context):\n    print('did', event['do'])\n    if event['do'] == 'raise': raise ValueError('not today')\n\
        \x20   if event['do'] == 'none': return None\n    if event['do'] == 'proxy': return {'statusCode': 418, 'body': 'x'}\n\
        \x20   return 'text'\n",
    );
    node.deploy(&snake);
    let script = home.path().join("source-script");
    std::fs::create_dir_all(&script).unwrap();
    std::fs::write(script.join("sinew.toml"), "[functions.script]\nruntime = \"node\"\n").unwrap();
    let source = "exports.handler = async (event) => {\n  console.log('did', event.do);\n\
        \x20 if (event.do === 'raise') throw new TypeError('not today');\n  if (event.do === 'none') return;\n\
        \x20 if (event.do === 'proxy') return { statusCode: 418, body: 'x' };\n  return 'text';\n};\n";
    std::fs::write(script.join("index.js"), source).unwrap();
    node.deploy(&script);
    let url = format!("http://{}", node.address);
    let output = Command::new(python).args(["-c", CLIENT, &url]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, kind) in [("snake", "ValueError"), ("script", "TypeError")] {
        let told = &told[name];
        assert_eq!(
            (&told["value"]["payload"], &told["value"]["version"]),
            (&"text".into(), &"1".into()),
            "{told}"
        );
        assert!(told["value"]["log"].as_str().unwrap().contains("did value"), "{told}");
        assert_eq!(told["proxy"]["payload"]["statusCode"], 418, "{told}");
        assert_eq!(
            (&told["none"]["payload"], &told["none"]["error"]),
            (&Value::Null, &Value::Null),
            "{told}"
        );
        assert_eq!(
            (&told["raise"]["status"], &told["raise"]["error"]),
            (&200.into(), &"Unhandled".into()),
            "{told}"
        );
        assert_eq!(told["raise"]["payload"]["errorType"], kind, "{told}");
        assert_eq!(told["raise"]["payload"]["errorMessage"], "not today", "{told}");
        assert_eq!(
            (&told["arn"]["payload"], &told["dry"]["status"]),
            (&"text".into(), &204.into()),
            "{told}"
        );
    }
    assert_eq!(told["missing"], "ResourceNotFoundException");
    assert_eq!(told["late"], 202);
}
