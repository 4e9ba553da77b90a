// SPDX-License-Identifier: Apache-2.0
import * as exporter from "otlp-http-new";
import * as sdk from "sdk-web-new";
import { offer } from "./web_sdk.js";

offer(exporter, sdk);
