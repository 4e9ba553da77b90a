// SPDX-License-Identifier: Apache-2.0
import * as exporter from "otlp-http-old";
import * as sdk from "sdk-web-old";
import { offer } from "./web_sdk.js";

offer(exporter, sdk);
